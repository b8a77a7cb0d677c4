//! What the machine has: a CUDA device, Python, and PyTorch's libraries; asked of programs, for nothing of it is linked.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use super::Line;
use crate::{doing, setup};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name, driver and memory of the first device, as `nvidia-smi` states them.
    pub device: Option<[String; 3]>,
    /// Folder of PyTorch within Python's packages, or of libtorch, of the right version.
    pub libtorch: Option<PathBuf>,
}

/// Says where Python has PyTorch without importing it.
const WHERE: &str =
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')";

impl Machine {
    /// Looks at this machine; `beside` is a folder of libtorch for a Python that has none.
    pub fn look(python: &Path, beside: Option<&Path>) -> Machine {
        let query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"];
        let device = doing::read(Command::new("nvidia-smi").args(query)).ok().as_deref().and_then(first_device);
        let installed = doing::read(Command::new(python).args(["-c", WHERE])).ok();
        let installed = installed.map(|path| PathBuf::from(path.trim())).filter(|path| is_right(path));
        Machine { device, libtorch: installed.or_else(|| beside.filter(|path| is_right(path)).map(Path::to_owned)) }
    }

    /// The line that results begin with.
    pub fn line(&self, packed: Option<&Value>) -> Line {
        let date = doing::read(Command::new("date").args(["-u", "+%FT%TZ"])).unwrap_or_default().trim().to_owned();
        let mut facts = Map::new();
        if let Some([_, driver, memory]) = &self.device {
            facts.extend([("driver".to_owned(), json!(driver)), ("memory".to_owned(), json!(memory))]);
        }
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        facts.extend([("cores".to_owned(), json!(cores)), ("torch".to_owned(), json!(setup::VERSION))]);
        facts
            .extend(packed.and_then(|packed| packed.get("commit")).map(|commit| ("commit".to_owned(), commit.clone())));
        Line::Machine { date, device: self.device.as_ref().map(|[name, _, _]| name.clone()), facts }
    }
}

/// Name, driver and memory of the first device that `nvidia-smi` lists; none where it lists none.
pub fn first_device(listed: &str) -> Option<[String; 3]> {
    let mut fields = listed.lines().next()?.split(',').map(|field| field.trim().to_owned());
    let found = [fields.next()?, fields.next()?, fields.next()?];
    (!found[0].is_empty()).then_some(found)
}

/// Whether it is the version that everything is built for.
fn is_right(folder: &Path) -> bool {
    let stated = ["build-version", "version.py"].map(|name| std::fs::read_to_string(folder.join(name)).ok());
    let text = stated.into_iter().flatten().next().unwrap_or_default();
    let version = text.lines().find_map(|line| line.strip_prefix("__version__ =")).unwrap_or(&text);
    version.trim().trim_matches(['\'', '"']).split('+').next() == Some(setup::VERSION)
}
