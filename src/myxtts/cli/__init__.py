"""The `myxtts` command line: one module per subcommand, plus shared flags, console output and reports."""
