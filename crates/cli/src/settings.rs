//! Flags, environment and defaults, merged once. The only place that reads the environment.

#![expect(clippy::disallowed_methods, reason = "settings read the environment")]

use std::env;
use std::path::{Path, PathBuf};

use domain::torch;

use crate::error::Error;

/// Settings of every command.
#[derive(Debug, Clone)]
pub struct GlobalSettings {
    /// Folder of all state.
    pub home: PathBuf,
    /// The server of `--server` or the environment, or that none is used.
    pub server: Option<String>,
    /// The token for it, if set.
    pub token: Option<String>,
    /// This executable.
    pub program: PathBuf,
    /// The executable of the built-in trainer.
    pub rank_program: PathBuf,
    /// Folder of libtorch, with `lib/` in it, if one was found.
    pub libtorch: Option<PathBuf>,
    /// Whether to print colours.
    pub color: bool,
    /// The chaos harness' socket.
    pub chaos: Option<PathBuf>,
    /// The `xtask` that built this executable for one run, possibly without some features.
    pub xtask: Option<PathBuf>,
    /// Credentials and endpoints of object stores.
    pub access: store::Access,
    /// Override of the cloud's own metadata service.
    pub metadata: Option<agent::MetadataService>,
    /// Who uses this machine, by `USER` or `LOGNAME`.
    pub user: Option<String>,
    /// Credentials of AWS.
    pub aws: cloud::aws::credentials::CredentialSources,
    /// Credentials of Google's cloud.
    pub gcp: cloud::gcp::GcpSources,
    /// Credentials of Azure.
    pub azure: cloud::azure::AzureSources,
    /// Credentials of Alibaba Cloud.
    pub alibaba: cloud::alibaba::AlibabaSources,
    /// Credentials of Tencent Cloud.
    pub tencent: cloud::tencent::TencentSources,
    /// The key of Lambda Cloud.
    pub lambda_key: Option<String>,
    /// Who is asked instead of Lambda Cloud.
    pub lambda_endpoint: Option<String>,
    /// Who is asked instead of Azure, for prices and for machines.
    pub azure_endpoint: Option<String>,
    /// Who is asked for AWS's price list.
    pub aws_prices_endpoint: Option<String>,
}

impl GlobalSettings {
    /// Merges `--home` and `--server` with the environment: `GRADUS_HOME`, `GRADUS_SERVER`, `GRADUS_TOKEN`,
    /// `GRADUS_RANK`, `GRADUS_LIBTORCH`, `GRADUS_METADATA`, `NO_COLOR`, and what the
    /// object stores' own tools read ([`store::VARIABLES`]).
    ///
    /// # Errors
    /// [`Error::Usage`] if no home folder is known, [`Error::File`] if the path of this executable is unknown.
    pub fn gather(home: Option<PathBuf>, server: Option<String>) -> Result<GlobalSettings, Error> {
        let program = env::current_exe().map_err(Error::file("find", "gradus"))?;
        let rank_program = path("GRADUS_RANK").unwrap_or_else(|| program.with_file_name("gradus-rank"));
        let libtorch = path("GRADUS_LIBTORCH").or_else(|| installed_libtorch(&program));
        let color = env::var_os("NO_COLOR").is_none() && env::var("TERM").map_or(true, |term| term != "dumb");
        let home = match home.or_else(|| path("GRADUS_HOME")).or_else(|| platform("XDG_DATA_HOME", ".local/share")) {
            Some(home) => home,
            None => {
                let message = "no folder for the state: neither `--home`, `GRADUS_HOME` nor `HOME` is set".to_owned();
                return Err(Error::Usage { message, hint: "set it with `--home FOLDER` or `GRADUS_HOME`".to_owned() });
            }
        };
        let (chaos, xtask, access) = (path(chaos::VARIABLE), path("GRADUS_XTASK"), access());
        let (metadata, aws, gcp, azure) = (metadata()?, aws(), gcp(), azure());
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let user = set("USER").or_else(|| set("LOGNAME"));
        let (server, token) = (server.or_else(|| set("GRADUS_SERVER")), set("GRADUS_TOKEN"));
        Ok(GlobalSettings {
            home,
            server,
            token,
            program,
            rank_program,
            libtorch,
            color,
            chaos,
            xtask,
            access,
            metadata,
            user,
            aws,
            gcp,
            azure,
            alibaba: alibaba(),
            tencent: tencent(),
            lambda_key: cloud::lambda::VARIABLES.into_iter().find_map(set),
            lambda_endpoint: set("GRADUS_LAMBDA_ENDPOINT"),
            azure_endpoint: set("GRADUS_AZURE_ENDPOINT"),
            aws_prices_endpoint: set("GRADUS_AWS_PRICES_ENDPOINT"),
        })
    }
}

impl GlobalSettings {
    /// The value of an environment variable, for `--secret NAME`.
    pub fn variable(name: &str) -> Option<String> {
        env::var(name).ok()
    }
}

/// A stand-in for the cloud's metadata service.
fn metadata() -> Result<Option<agent::MetadataService>, Error> {
    let Ok(text) = env::var("GRADUS_METADATA") else { return Ok(None) };
    let service = agent::MetadataService::parse(&text);
    service.map(Some).ok_or_else(|| Error::Usage {
        message: format!("`GRADUS_METADATA` is `{text}`, which is not CLOUD=http://HOST:PORT"),
        hint: "unset it, or name one of aws, gcp, azure, alibaba, tencent".to_owned(),
    })
}

/// Settings of object stores: variables, and the file that `aws configure` writes.
fn access() -> store::Access {
    let file = path("AWS_SHARED_CREDENTIALS_FILE").or_else(|| Some(path("HOME")?.join(".aws/credentials")));
    let access = store::Access::gather(|name| env::var(name).ok());
    match file {
        Some(file) => access.with_credentials_file(file),
        None => access,
    }
}

/// Settings of AWS: variables, and the files that its tools write.
fn aws() -> cloud::aws::credentials::CredentialSources {
    use cloud::aws::credentials::{CredentialSources, VARIABLES};
    let file = |variable: &str, name: &str| {
        let path = path(variable).or_else(|| Some(path("HOME")?.join(".aws").join(name)));
        path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    };
    let set = |name: &&str| env::var(name).ok().map(|value| ((*name).to_owned(), value));
    CredentialSources {
        variables: VARIABLES.iter().filter_map(set).collect(),
        credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        config: file("AWS_CONFIG_FILE", "config"),
        sso_cache: path("HOME").map(|home| home.join(".aws/sso/cache")),
    }
}

/// What is known of Google's cloud: variables, and the file that `gcloud auth application-default login` writes.
fn gcp() -> cloud::gcp::GcpSources {
    let named = path("GOOGLE_APPLICATION_CREDENTIALS");
    let file = named.or_else(|| Some(path("HOME")?.join(".config/gcloud/application_default_credentials.json")));
    let set = |name: &&str| env::var(name).ok().map(|value| ((*name).to_owned(), value));
    cloud::gcp::GcpSources {
        variables: cloud::gcp::VARIABLES.iter().filter_map(set).collect(),
        file: file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default(),
    }
}

/// What variables say of Azure.
fn azure() -> cloud::azure::AzureSources {
    let set = |name: &&str| env::var(name).ok().map(|value| ((*name).to_owned(), value));
    cloud::azure::AzureSources { variables: cloud::azure::VARIABLES.iter().filter_map(set).collect() }
}

/// What is known of Alibaba Cloud: variables, and the file that `aliyun configure` writes.
fn alibaba() -> cloud::alibaba::AlibabaSources {
    let file = path("HOME").map(|home| home.join(".aliyun/config.json"));
    let set = |name: &&str| env::var(name).ok().map(|value| ((*name).to_owned(), value));
    cloud::alibaba::AlibabaSources {
        variables: cloud::alibaba::VARIABLES.iter().filter_map(set).collect(),
        config: file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default(),
    }
}

/// What is known of Tencent Cloud: variables, and the file that its tools and libraries read.
fn tencent() -> cloud::tencent::TencentSources {
    let file = path("HOME").map(|home| home.join(".tencentcloud/credentials"));
    let set = |name: &&str| env::var(name).ok().map(|value| ((*name).to_owned(), value));
    cloud::tencent::TencentSources {
        variables: cloud::tencent::VARIABLES.iter().filter_map(set).collect(),
        file: file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default(),
    }
}

/// The pruned copy beside the executable; the one that `cargo xtask setup` keeps in the user's cache; or PyTorch, where pip
/// has installed both in the same environment.
fn installed_libtorch(program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?.parent()?.join("lib");
    let cached = platform("XDG_CACHE_HOME", ".cache").map(|cache| cache.join(torch::CACHE_FOLDER));
    let pruned = [Some(beside.join(torch::CACHE_FOLDER)), cached].into_iter().flatten();
    pruned.chain(of_python(&beside)).find(|folder| folder.join("lib").is_dir())
}

/// PyTorch of the Python environment whose folder of libraries this is.
fn of_python(lib: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    pythons.map(|python| python.path().join("site-packages/torch")).collect()
}

/// `gradus` in one of the platform's folders.
fn platform(variable: &str, below_home: &str) -> Option<PathBuf> {
    let base = path(variable).or_else(|| path("HOME").map(|home| home.join(below_home)))?;
    Some(base.join("gradus"))
}

fn path(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
