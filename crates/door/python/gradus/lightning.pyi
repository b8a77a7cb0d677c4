from typing import Optional

import lightning

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
