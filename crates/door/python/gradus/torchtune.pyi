from collections.abc import Mapping
from typing import Any, Optional, SupportsFloat

from torchtune.training.metric_logging import MetricLoggerInterface

from . import Run

class GradusLogger(MetricLoggerInterface):
    run: Run
    def __init__(
        self,
        log_dir: Optional[str] = None,
        *,
        checkpoints: Optional[str] = None,
        program: str = "",
        save_every: str = "auto",
        keep: int = 3,
        mtbf: str = "24h",
        steps: int = 0,
        hang_after: Optional[str] = "30m",
    ) -> None: ...
    def log(self, name: str, data: SupportsFloat, step: int) -> None: ...
    def log_config(self, config: Any) -> None: ...
    def log_dict(self, payload: Mapping[str, SupportsFloat], step: int) -> None: ...
    def close(self) -> None: ...
