from collections.abc import Mapping
from typing import Any, Optional

from accelerate.tracking import GeneralTracker

from . import Run

class GradusTracker(GeneralTracker):
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
    @property
    def tracker(self) -> Run: ...
    def store_init_configuration(self, values: Mapping[str, Any]) -> None: ...
    def log(self, values: Mapping[str, Any], step: Optional[int] = None, **_: Any) -> None: ...
    def finish(self) -> None: ...
