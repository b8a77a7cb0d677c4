//! Machines of clouds: the client, and what the user has set.

use std::sync::{Arc, OnceLock};

use cloud::aws::wire::failure::AwsFailure;
use cloud::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use cloud::aws::{Client, ReachSettings};
use cloud::{Aws, AwsOptions, AwsSettings, Catalog, SshSettings};
use domain::{Bytes, Job, Offer};
use server::Home;
use store::WebClient;

use crate::error::{Error, exit};
use crate::settings::GlobalSettings;

/// A client for HTTP that is made when it is used first: most commands rent nothing.
#[derive(Default)]
struct LazyWeb(OnceLock<Result<WebClient, String>>);

impl HttpTransport for LazyWeb {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let client = self.0.get_or_init(|| WebClient::new().map_err(|error| error.to_string())).as_ref();
        let HttpRequest { method, url, headers, body } = request;
        let (status, body) = client.map_err(Clone::clone)?.send(method, url, headers, body.clone())?;
        Ok(HttpReply { status, body })
    }
}

/// A client for AWS with the user's credentials.
///
/// # Errors
/// [`Error::Store`] in an executable without a client for HTTP.
pub fn client(settings: &GlobalSettings) -> Result<Client, Error> {
    WebClient::new()?;
    Ok(lazy(settings))
}

fn lazy(settings: &GlobalSettings) -> Client {
    Client::new(Arc::new(LazyWeb::default()), settings.aws.clone())
}

/// The provider `aws` of a home, whose machines are reached with what `ssh` says.
///
/// # Errors
/// [`Error::File`] or [`Error::Usage`] when `aws.json` cannot be read.
pub fn aws(settings: &GlobalSettings, home: &Home, ssh: SshSettings) -> Result<Aws, Error> {
    let options = options(home)?;
    let reach = ReachSettings {
        owner: ssh.owner,
        socket: ssh.socket,
        program: ssh.program,
        ssh_config: options.ssh_config.clone(),
    };
    Ok(Aws::new(AwsSettings { home: home.root().to_owned(), options, reach }, lazy(settings)))
}

/// What the user has set in `aws.json`; nothing where there is none.
fn options(home: &Home) -> Result<AwsOptions, Error> {
    let path = home.root().join("aws.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(AwsOptions::default()),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    serde_json::from_slice(&text).map_err(|error| Error::Usage {
        message: format!("`{}` cannot be read: {error}", path.display()),
        hint: "docs/aws.md lists what it may hold".to_owned(),
    })
}

/// The region to ask about the account.
pub fn region(settings: &GlobalSettings, typed: Option<&str>) -> String {
    typed.map(str::to_owned).or_else(|| settings.aws.region()).unwrap_or_else(|| "us-east-1".to_owned())
}

/// What of AWS a job may run on, from the catalog: each with a disk as large as the job asks for.
///
/// # Errors
/// [`Error::Store`] in an executable without a client for HTTP, [`Error::Usage`] where nothing is what the job asks for,
/// [`Error::Code`] where there are no credentials.
pub fn offers(job: &Job, settings: &GlobalSettings) -> Result<Vec<Offer>, Error> {
    WebClient::new()?;
    if let Err(why) = settings.aws.source() {
        return Err(refused("rent from AWS", &AwsFailure::Credentials(why)));
    }
    let mut offers = cloud::aws::offers(&Catalog::open(&settings.home)?, &job.wants);
    for offer in &mut offers {
        let Bytes(disk) = offer.node.disk_free;
        offer.node.disk_free = Bytes(job.needs.disk.map_or(disk, |needed| disk.max(needed.0)));
    }
    if offers.is_empty() {
        let message = "the catalog has no machine of AWS that is what `resources` asks for".to_owned();
        return Err(Error::Usage { message, hint: "`gradus offers --cloud aws` lists what there is".to_owned() });
    }
    Ok(offers)
}

/// A request that AWS has refused.
pub fn refused(doing: &str, failure: &AwsFailure) -> Error {
    let hint = match failure {
        AwsFailure::Credentials(_) => "see docs/aws.md for where credentials are looked for",
        AwsFailure::Denied { .. } => "`gradus cloud policy aws` prints the policy that is needed",
        _ => "run the same command again",
    };
    Error::Code { message: format!("cannot {doing}: {failure}"), hint: Some(hint.to_owned()), code: exit::WORLD }
}
