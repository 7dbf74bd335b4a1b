"""Feeds a Keras model of one's own from `open_batches`: python examples/feed_own_model.py STORE [STEPS]

The model is a toy that guesses the speaker of a spectrogram. What matters is the loop: batches come in a few static
shapes, are on the device already, and the feed says how long the step had to wait for them.
"""

from __future__ import annotations

import argparse
from typing import Any

from myxtts import FeatureStore, XTTSConfig, open_batches


def make_model(num_speakers: int, n_mels: int) -> Any:
    import keras

    return keras.Sequential(
        [
            keras.layers.Input((None, n_mels)),
            keras.layers.Conv1D(64, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(num_speakers),
        ]
    )


def main(store: str, steps: str = "30", *settings: str) -> float:
    config = XTTSConfig.load(flags=dict(setting.split("=", 1) for setting in settings), cache_dir=store, batch_size=8)
    speakers = FeatureStore.open(store).speakers
    with open_batches(config, split="train", steps=int(steps), say=print) as batches:
        import keras

        model = make_model(len(speakers), config.data.n_mels)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
        for batch in batches:
            # Rows that fill a shape up have no frames; they must not count.
            is_real = batch.mel_lengths > 0
            numbers = model.train_on_batch(batch.mel, batch.speaker, sample_weight=is_real, return_dict=True)
            print(f"batch {batch.position}: loss {float(numbers['loss']):.3f}")
        stats = batches.stats()
    print(f"AU {stats.au:.1%} (no data wait), {1e3 * stats.mean_wait_s:.2f} ms a step, padding {stats.padding:.1%}")
    return stats.au


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Feed a Keras model of one's own from a feature store.")
    parser.add_argument("store", help="folder that `myxtts precompute` has made")
    parser.add_argument("steps", nargs="?", default="30", help="batches to train on")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings that the store was made with")
    given = parser.parse_args()
    main(given.store, given.steps, *given.settings)
