"""Says a sentence in the voice of a recording: python examples/clone_voice.py RUN RECORDING OUT.wav [TEXT] [LANGUAGE]

Also shows how alike the model finds the recording and what it said itself, from -1 to 1.
"""

from __future__ import annotations

import argparse

from myxtts import Synthesizer
from myxtts.features.wave_file import write_sound


def main(run: str, recording: str, out: str, text: str = "This is my voice, is it not?", language: str = "en") -> float:
    from pathlib import Path

    speaker = Synthesizer.load(run, warn=print)
    voice = speaker.encode_voice(recording)
    write_sound(Path(out), speaker.say(text, voice=voice, language=language))
    alike = voice.compare(speaker.encode_voice(out))
    print(f"{out}: {text!r} in the voice of {recording}, similarity {alike:.2f}")
    speaker.save_voice("guest", voice)
    print(f"saved as 'guest', to be used by name; the model knows {', '.join(speaker.voices())}")
    return alike


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Say a sentence in the voice of a recording.")
    parser.add_argument("run", help="folder of a run or bundle")
    parser.add_argument("recording", help="a few seconds of the voice")
    parser.add_argument("out", help="WAV file to write")
    parser.add_argument("text", nargs="?", default="This is my voice, is it not?")
    parser.add_argument("language", nargs="?", default="en")
    main(**vars(parser.parse_args()))
