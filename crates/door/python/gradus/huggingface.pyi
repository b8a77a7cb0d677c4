from typing import Optional

import transformers

from . import Run

class GradusCallback(transformers.TrainerCallback):
    run: Run
    def __init__(
        self,
        *,
        checkpoints: Optional[str] = None,
        program: str = "",
        save_every: str = "auto",
        keep: int = 3,
        mtbf: str = "24h",
        steps: int = 0,
        hang_after: Optional[str] = "30m",
    ) -> None: ...
    def resume(self) -> Optional[str]: ...
