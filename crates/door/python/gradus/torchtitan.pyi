from typing import Any, Optional

from torchtitan.components.metrics import MetricsProcessor

from . import Run

def register(
    model: str,
    name: Optional[str] = None,
    *,
    checkpoints: Optional[str] = None,
    program: str = "",
    save_every: str = "auto",
    keep: int = 3,
    mtbf: str = "24h",
    hang_after: Optional[str] = "30m",
) -> None: ...

class GradusMetrics(MetricsProcessor):
    run: Run
    def __init__(
        self,
        job_config: Any,
        parallel_dims: Any,
        tag: Optional[str] = None,
        *,
        checkpoints: Optional[str] = None,
        program: str = "",
        save_every: str = "auto",
        keep: int = 3,
        mtbf: str = "24h",
        hang_after: Optional[str] = "30m",
    ) -> None: ...
    def should_log(self, step: int) -> bool: ...
