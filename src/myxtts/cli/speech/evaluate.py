"""`myxtts evaluate`: objective metrics on held-out utterances: mel distance, duration, speaker similarity, WER, RTF."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from myxtts.cli.help import WHAT, WHERE, DecoderSteps, Recogniser, Seed, VocoderName, option
from myxtts.cli.screen import Screen, print_note, show_progress
from myxtts.errors import DataError, UsageError
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.synthesis.options import SpeechOptions

if TYPE_CHECKING:
    from myxtts.store.reader import FeatureStore
    from myxtts.tools.evaluate import Evaluation
    from myxtts.types import Split

_SPLITS: tuple[Split, ...] = ("val", "test", "train")


_USUAL = SpeechOptions()


def run_evaluate(
    model: Annotated[Path, option("Folder of a run or exported model.", "MODEL", WHAT)],
    cache_dir: Annotated[
        Path | None, option("Feature cache with the utterances. \\[default: that of the run]", "DIR", WHERE)
    ] = None,
    split: Annotated[str, option("Which utterances: val, test or train.", panel=WHAT)] = "val",
    max_utterances: Annotated[int, option("Measure at most this many, evenly spread.", "N", WHAT, min=1)] = 50,
    asr_command: Recogniser = None,
    out: Annotated[Path | None, option("Keep the synthesised speech as WAV files here.", "DIR", WHERE)] = None,
    seed: Seed = 0,
    ode_steps: DecoderSteps = _USUAL.num_steps,
    vocoder: VocoderName = "auto",
    as_json: Annotated[bool, option("Print everything as one JSON object.", flag="--json")] = False,
) -> None:
    """Measure a model on held-out utterances: mel distance, durations, speaker similarity, speed.

    With --asr-command also word and character error rate. Speaker similarity is judged by the model's own reference
    encoder, so compare it only between runs on the same corpus.

    [bold]Examples[/bold]

    myxtts evaluate --model runs/anna

    myxtts evaluate --model runs/anna --asr-command "my-asr {wav}" --json
    """
    from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
    from myxtts.synthesis.synthesizer import Synthesizer

    screen = Screen(as_json=as_json)
    chosen = next((name for name in _SPLITS if name == split), None)
    if chosen is None:
        raise UsageError(f"--split {split} does not exist.", next_step=f"Use one of {', '.join(_SPLITS)}.")
    options = SpeechOptions(seed=seed, num_steps=ode_steps)
    loaded, kind = choose_vocoder(load_bundle(model, print_note), vocoder)
    store = _open_store(loaded.folder, cache_dir, chosen)
    load_tensorflow()
    from myxtts.tools.evaluate import Examiner, choose_rows, refuse_foreign_store
    from myxtts.tools.recognition import Recogniser

    recogniser = Recogniser(asr_command) if asr_command is not None else None
    refuse_foreign_store(loaded, store)
    rows = choose_rows(store, split, max_utterances)
    texts = _read_texts(store) if recogniser is not None else {}
    synthesizer = Synthesizer(loaded, vocoder=kind, warn=screen.warn)
    examiner = Examiner(synthesizer, store, options=options, recogniser=recogniser, texts=texts, wav_folder=out)
    with show_progress("Evaluating", len(rows), "utterances") as view:
        evaluation, measured = examiner.examine(rows, view.update)
    _show(evaluation, screen)
    loaded.keep_evaluation(split, evaluation.to_json())
    utterances = [asdict(row) for row in measured]
    screen.finish({"model": str(loaded.folder), "split": split, **evaluation.to_json(), "utterances": utterances})


def _open_store(bundle: Path, cache_dir: Path | None, split: Split) -> FeatureStore:
    """Opens the store that was named, or the one in the configuration beside the bundle."""
    from myxtts.config.load import RESOLVED_FILE_NAME
    from myxtts.pipeline.splits import choose_store_folder_of_split, join_training_store
    from myxtts.store.reader import FeatureStore
    from myxtts.training.run.resume import load_run_settings

    if cache_dir is not None:
        return FeatureStore.open(cache_dir)
    file = bundle.absolute().parent / RESOLVED_FILE_NAME
    if not file.is_file():
        raise UsageError("The model does not say where its feature cache is.", next_step="Add --cache-dir DIR.")
    data = load_run_settings(file.parent).data
    store = FeatureStore.open(choose_store_folder_of_split(data, split))
    join_training_store(store, data, split)
    return store


def _read_texts(store: FeatureStore) -> dict[str, str]:
    """Reads the reference texts from the store's corpus; the store itself has token ids only."""
    from myxtts.corpus.corpus_file import open_corpus

    path = Path(store.state.origin.corpus)
    if not path.is_file():
        raise DataError(
            f"The corpus {path} of the feature cache does not exist: there is no text to compare with.",
            next_step="Restore it, or leave out --asr-command.",
        )
    return {utterance.id: utterance.text for utterance in open_corpus(path).utterances()}


def _show(evaluation: Evaluation, screen: Screen) -> None:
    """Prints the means over all utterances; the similarity of two real clips is the reference for that of a voice."""
    skipped = f", {evaluation.num_skipped:,} skipped" if evaluation.num_skipped else ""
    of_real = f"two real clips {evaluation.real_similarity:.3f}"
    lines = [
        f"{evaluation.num_utterances:,} utterances{skipped}",
        f"mel distance            {evaluation.mel_distance:.3f}  (log-mel, time warped)",
        f"utterance length error  {100 * evaluation.length_error:.1f} %",
        f"speaker similarity      {evaluation.speaker_similarity:.3f}  ({of_real}; own encoder: too optimistic)",
    ]
    if evaluation.real_time_factor is not None:
        lines.append(f"real-time factor        {evaluation.real_time_factor:.3f}")
    if evaluation.word_error is not None and evaluation.character_error is not None:
        words, characters = 100 * evaluation.word_error, 100 * evaluation.character_error
        lines.append(f"errors                  {words:.1f} % of words, {characters:.1f} % of characters")
    for line in lines:
        screen.console.print(line, markup=False)
