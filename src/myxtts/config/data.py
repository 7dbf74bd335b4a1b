"""Settings of the corpus, the features and the feed: where data comes from, what it becomes, how it travels."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from myxtts.config.section import Contradiction, Section
from myxtts.config.values import accept_path, check_address, format_gpu_numbers, parse_gpu_numbers

CorpusFormat = Literal["auto", "ljspeech", "vctk", "libritts", "commonvoice", "piper", "coqui", "manifest"]


class DataConfig(Section):
    section_name: ClassVar[str] = "data"

    # The corpus.
    train_data: str | None = Field(default=None, description="Corpus folder or file to train on.")
    val_data: str | None = Field(
        default=None, description="Corpus folder or file to validate on; null takes val_share of the training corpus."
    )
    cache_dir: str | None = Field(
        default=None, description="Folder of the feature store; null means cached_features/ beside the corpus."
    )
    corpus_format: CorpusFormat = Field(default="auto", description="Layout of the corpus; auto recognises it.")
    language: str = Field(
        default="en",
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        json_schema_extra={"allowed": "a language code such as en, fa or pt-br"},
        description="Language of the rows that name none.",
    )
    val_share: float = Field(
        default=0.05,
        ge=0.0,
        le=0.5,
        description="Share of the utterances kept for validation when the corpus has no split.",
    )
    split_by: Literal["utterance", "speaker", "text"] = Field(
        default="utterance", description="What stays together on one side of the validation split."
    )
    max_bad_share: float = Field(
        default=0.01, ge=0.0, le=1.0, description="Share of unusable utterances above which the work stops."
    )

    # Text.
    text_frontend: Literal["auto", "phonemes", "characters"] = Field(
        default="auto",
        description="Phonemes by espeak-ng or plain characters; auto takes phonemes where espeak-ng is installed.",
    )
    lexicon: str | None = Field(
        default=None, description="File of pronunciations that take precedence over the front end."
    )

    # Recordings that are accepted, and what is done to them.
    min_duration_s: float = Field(default=0.3, ge=0.0, le=3600.0, description="Shorter recordings are rejected.")
    max_duration_s: float = Field(default=30.0, gt=0.0, le=3600.0, description="Longer recordings are rejected.")
    max_source_rate_hz: int = Field(
        default=192_000, ge=8000, le=768_000, description="Recordings with a higher sample rate are rejected."
    )
    max_channels: int = Field(default=8, ge=1, le=64, description="Recordings with more channels are rejected.")
    silence_db: float = Field(
        default=-60.0,
        ge=-200.0,
        le=0.0,
        description="A recording whose peak stays below this level is rejected as silent.",
    )
    max_clipped_share: float = Field(
        default=0.005, ge=0.0, le=1.0, description="Share of samples at full scale above which a recording is rejected."
    )
    trim_silence: bool = Field(default=True, description="Cut silence from both ends of a recording.")
    trim_db: float = Field(
        default=38.0, gt=0.0, le=120.0, description="How far below the loudest part counts as silence when trimming."
    )
    loudness: Literal["rms", "peak", "none"] = Field(
        default="rms", description="What is brought to loudness_target; none leaves recordings as they are."
    )
    loudness_target: float = Field(
        default=0.06, gt=0.0, le=1.0, description="Level that loudness is brought to, full scale being 1."
    )

    # Features.
    sample_rate: int = Field(
        default=22_050, ge=8000, le=48_000, description="Sample rate in Hz that recordings are resampled to."
    )
    n_fft: int = Field(default=1024, ge=16, le=16_384, description="Length of the Fourier transform in samples.")
    hop_length: int = Field(default=256, ge=1, le=16_384, description="Samples from one mel frame to the next.")
    win_length: int = Field(default=1024, ge=2, le=16_384, description="Length of the analysis window in samples.")
    n_mels: int = Field(default=80, ge=1, le=1024, description="Number of mel bands.")
    fmin: float = Field(default=0.0, ge=0.0, le=24_000.0, description="Lowest frequency of the mel bands in Hz.")
    fmax: float = Field(default=8000.0, gt=0.0, le=24_000.0, description="Highest frequency of the mel bands in Hz.")
    log_floor: float = Field(default=1e-5, gt=0.0, le=1.0, description="Smallest mel value before the logarithm.")
    max_mel_frames: int | None = Field(
        default=None,
        ge=1,
        description="Longest utterance in mel frames before trimming; longer ones are left out. null means no limit.",
    )

    reference_s: float = Field(
        default=5.0,
        gt=0.0,
        le=30.0,
        description="Seconds of another clip of the speaker that a batch carries as voice.",
    )

    # The feature store.
    preprocessing_mode: Literal["precompute", "on_the_fly"] = Field(
        default="precompute", description="Make features once into the store, or anew in every epoch."
    )
    mel_dtype: Literal["float16", "float32"] = Field(
        default="float32", description="Number format of stored mel features."
    )
    store_pcm: bool = Field(default=False, description="Keep the processed sound beside the features in the store.")
    cache_verification: Literal["off", "sampled", "full"] = Field(
        default="sampled", description="How much of the store is checked against its checksums before training."
    )
    auto_rebuild_token_cache: bool = Field(
        default=True, description="Rebuild stored tokens by themselves when text settings have changed."
    )
    auto_rebuild_mel_cache: bool = Field(
        default=False, description="Rebuild stored mel features by themselves when audio settings have changed."
    )

    # Batches.
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | Literal["auto"] = Field(
        default=32, description="Utterances in a batch; auto finds what fits."
    )
    frame_budget: int | None = Field(
        default=None, ge=1, description="Padded mel frames in a batch, instead of a fixed number of utterances."
    )
    num_shapes: int = Field(
        default=8, ge=1, le=64, description="Number of static batch shapes that utterances are sorted into by length."
    )

    # The feed.
    num_workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = Field(
        default="auto", description="Loader threads; auto takes what the cores allow."
    )
    buffer_size: int = Field(default=50, ge=1, le=10_000, description="Batches held ready in memory.")
    prefetch_buffer_size: int = Field(default=2, ge=1, le=64, description="Batches held ready on the device.")
    ram_budget_gb: float | None = Field(
        default=None, gt=0.0, description="Memory in GB that the feed may take; null derives it from the machine."
    )
    use_tf_native_loading: bool = Field(
        default=True, description="Read and decode inside the TensorFlow graph; off uses the Python loader."
    )
    prefetch_to_gpu: bool = Field(default=True, description="Copy batches to the device before they are asked for.")
    enhanced_gpu_prefetch: bool = Field(
        default=True, description="Hold prefetch_buffer_size batches on the device; off holds one."
    )
    optimize_cpu_gpu_overlap: bool = Field(
        default=True, description="Keep loader threads off the cores that drive the devices."
    )
    auto_tune_performance: bool = Field(
        default=True, description="Adjust buffer and threads from waits measured in the first steps."
    )
    data_service: str | None = Field(
        default=None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
        json_schema_extra={"allowed": "an address such as 10.0.0.5:5050 or null"},
        description="Address of a tf.data service that does on-the-fly feature work.",
    )

    # Devices.
    data_gpu: int | None = Field(
        default=None,
        ge=0,
        le=9999,
        description="GPU that computes features; with model_gpu it turns on Multi-GPU mode.",
    )
    model_gpu: int | str | None = Field(
        default=None,
        json_schema_extra={"allowed": 'a GPU number, several as "1,2,3" or null'},
        description="GPU that trains the model; several are mirrored and fed by data_gpu.",
    )
    model_start_delay: float = Field(
        default=2.0,
        ge=0.0,
        le=600.0,
        description="Seconds the data GPU works before the model may start, in Multi-GPU mode.",
    )

    @field_validator("train_data", "val_data", "cache_dir", "lexicon", mode="before")
    @classmethod
    def _accept_path(cls, value: object) -> object:
        return accept_path(value)

    @field_validator("data_service")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        return check_address(value)

    @field_validator("model_gpu", mode="before")
    @classmethod
    def _canonicalise_model_gpu(cls, value: object) -> int | str | None:
        if value is None:
            return None
        numbers = parse_gpu_numbers(value)
        return numbers[0] if len(numbers) == 1 else format_gpu_numbers(numbers)

    @model_validator(mode="after")
    def _refuse_impossible_bands(self) -> Self:
        if self.fmax > self.sample_rate / 2:
            raise Contradiction(
                f"fmax is {self.fmax}, above half the sample rate, {self.sample_rate / 2}",
                keys=("fmax", "sample_rate"),
                next_step=f"Set data.fmax to {self.sample_rate / 2} or less, or raise data.sample_rate.",
            )
        if self.fmin >= self.fmax:
            raise Contradiction(
                f"fmin is {self.fmin}, not below fmax, {self.fmax}",
                keys=("fmin", "fmax"),
                next_step="Lower data.fmin or raise data.fmax.",
            )
        if self.n_mels > self.n_fft // 2 + 1:
            raise Contradiction(
                f"n_mels is {self.n_mels}, but n_fft {self.n_fft} gives only {self.n_fft // 2 + 1} frequencies",
                keys=("n_mels", "n_fft"),
                next_step="Lower data.n_mels or raise data.n_fft.",
            )
        return self

    @model_validator(mode="after")
    def _refuse_impossible_windows(self) -> Self:
        if self.win_length > self.n_fft:
            raise Contradiction(
                f"win_length is {self.win_length}, longer than n_fft, {self.n_fft}",
                keys=("win_length", "n_fft"),
                next_step="Lower data.win_length or raise data.n_fft.",
            )
        if self.hop_length > self.win_length:
            raise Contradiction(
                f"hop_length is {self.hop_length}, longer than win_length, {self.win_length}, and would skip samples",
                keys=("hop_length", "win_length"),
                next_step="Lower data.hop_length or raise data.win_length.",
            )
        return self

    @model_validator(mode="after")
    def _refuse_impossible_lengths(self) -> Self:
        if self.min_duration_s >= self.max_duration_s:
            raise Contradiction(
                f"min_duration_s is {self.min_duration_s}, not below max_duration_s, {self.max_duration_s}",
                keys=("min_duration_s", "max_duration_s"),
                next_step="Lower data.min_duration_s or raise data.max_duration_s.",
            )
        if self.frame_budget is not None and self.frame_budget < (self.max_mel_frames or 0):
            raise Contradiction(
                f"frame_budget is {self.frame_budget}, too small for one of max_mel_frames, {self.max_mel_frames}",
                keys=("frame_budget", "max_mel_frames"),
                next_step="Raise data.frame_budget or lower data.max_mel_frames.",
            )
        return self
