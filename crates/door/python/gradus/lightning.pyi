import os
from typing import Any, Optional, Union

import lightning
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from . import Run

class GradusCallback(lightning.Callback):
    run: Run
    at_epoch_ends: bool
    def __init__(
        self,
        *,
        at_epoch_ends: bool = False,
        checkpoints: Optional[str] = None,
        program: str = "",
        save_every: str = "auto",
        keep: int = 3,
        mtbf: str = "24h",
        steps: int = 0,
        hang_after: Optional[str] = "30m",
    ) -> None: ...
    def resume(self) -> Optional[str]: ...

class GradusCheckpointIO(TorchCheckpointIO):
    def __init__(self) -> None: ...
    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Union[str, os.PathLike[str]], storage_options: Optional[Any] = None
    ) -> None: ...
    def load_checkpoint(
        self, path: Union[str, os.PathLike[str]], map_location: Any = None, weights_only: Optional[bool] = None
    ) -> dict[str, Any]: ...
