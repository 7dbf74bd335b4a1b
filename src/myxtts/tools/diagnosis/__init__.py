"""The parts of `myxtts diagnose`: measure, reason, advise, show. `myxtts.tools.diagnose` puts them together."""
