import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Optional, SupportsFloat, SupportsIndex, Union

class CheckpointError(RuntimeError):
    """A state could not be saved or loaded; what was durable before still is."""

class CheckpointWarning(UserWarning):
    """A state was not saved, or an older one was loaded; training continues."""

def init(
    *,
    checkpoints: Optional[Union[str, os.PathLike[str]]] = None,
    program: str = "",
    save_every: str = "auto",
    keep: int = 3,
    mtbf: str = "24h",
    steps: int = 0,
    hang_after: Optional[str] = "30m",
) -> Run: ...

class Run:
    id: str
    attempt: int
    rank: int
    world: int
    checkpoints: Optional[str]
    step: int
    budget: Optional[float]
    deadline: Optional[float]
    stall_ms: float
    @property
    def is_attended(self) -> bool: ...
    @property
    def saved_step(self) -> Optional[int]: ...
    def log(
        self,
        step: SupportsIndex,
        *,
        loss: Optional[SupportsFloat] = None,
        lr: Optional[SupportsFloat] = None,
        samples: SupportsIndex = 0,
        epoch: SupportsIndex = 0,
        **metrics: SupportsFloat,
    ) -> None: ...
    def should_save(self, step: SupportsIndex) -> bool: ...
    def should_stop(self) -> bool: ...
    def save(self, state: Mapping[Any, Any], step: SupportsIndex, *, rng: bool = True, wait: bool = False) -> None: ...
    def load(self, objects: Optional[Mapping[Any, Any]] = None, *, rng: bool = True) -> Optional[dict[Any, Any]]: ...
    def wait(self) -> None: ...
    def finish(self) -> None: ...

class Loader(Iterator[Any]):
    def __init__(
        self,
        uri: Union[str, os.PathLike[str]],
        recipe: str,
        batch: int,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        *,
        pad: bool = True,
        seed: int = 0,
        workers: Optional[int] = None,
        size: Optional[int] = None,
        numbers: Literal["f32", "bf16", "u8"] = "f32",
        channels_last: bool = False,
        part: Literal["train", "val", "test"] = "train",
        split: Union[Sequence[float], Literal["folders"]] = (1.0, 0.0, 0.0),
        mean: Optional[Sequence[float]] = None,
        std: Optional[Sequence[float]] = None,
        skip_corrupt: bool = False,
        cache: Optional[Union[str, os.PathLike[str]]] = None,
        tensors: Optional[Literal["torch", "numpy"]] = None,
        augment: Optional[Sequence[Union[str, Mapping[str, Any]]]] = None,
        transform: Optional[Callable[..., Any]] = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def epoch(self) -> int: ...
    @property
    def measured(self) -> dict[str, Union[int, float]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Loader: ...
    def __next__(self) -> Any: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

class TextLoader(Loader):
    def __init__(
        self,
        uri: Union[str, os.PathLike[str]],
        batch: int,
        length: int = 128,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        *,
        goal: Literal["next", "masked", "class"] = "next",
        columns: Union[str, Sequence[str]] = ("text",),
        label: Optional[str] = None,
        pair: Optional[str] = None,
        tokenizer: Optional[Union[str, os.PathLike[str]]] = None,
        vocabulary: int = 8000,
        documents: Literal["together", "apart"] = "together",
        seed: int = 0,
        part: Literal["train", "val", "test"] = "train",
        split: Union[Sequence[float], Literal["folders"]] = (1.0, 0.0, 0.0),
        cache: Optional[Union[str, os.PathLike[str]]] = None,
        tensors: Optional[Literal["torch", "numpy"]] = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def tokenizer(self) -> str: ...
    def __iter__(self) -> TextLoader: ...
    def __next__(self) -> dict[str, Any]: ...

class DetectionLoader(Loader):
    def __init__(
        self,
        uri: Union[str, os.PathLike[str]],
        batch: int,
        size: Optional[int] = None,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        *,
        augment: Sequence[Literal["flip", "mosaic"]] = ("flip",),
        seed: int = 0,
        workers: Optional[int] = None,
        part: Literal["train", "val", "test"] = "train",
        split: Union[Sequence[float], Literal["folders"]] = (1.0, 0.0, 0.0),
        mean: Optional[Sequence[float]] = None,
        std: Optional[Sequence[float]] = None,
        skip_corrupt: bool = False,
        cache: Optional[Union[str, os.PathLike[str]]] = None,
        tensors: Optional[Literal["torch", "numpy"]] = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def __iter__(self) -> DetectionLoader: ...
    def __next__(self) -> tuple[Any, list[dict[str, Any]]]: ...

class SampleLoader(Loader):
    def __init__(
        self,
        uri: Union[str, os.PathLike[str]],
        batch: int,
        decode: Callable[..., Any],
        rank: Optional[int] = None,
        world: Optional[int] = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        workers: Optional[int] = None,
        grouped: bool = False,
        collate: Optional[Callable[[list[Any]], Any]] = None,
        cache: Optional[Union[str, os.PathLike[str]]] = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None: ...
    def __iter__(self) -> SampleLoader: ...
