//! Credentials and endpoints from the settings, passed in once and never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The variables that are understood, by the names that the services' own tools use.
pub const VARIABLES: [&str; 38] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_PROFILE",
    "AWS_SKIP_SIGNATURE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_BASE_URL",
    "GOOGLE_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "OSS_ACCESS_KEY_ID",
    "OSS_ACCESS_KEY_SECRET",
    "OSS_SESSION_TOKEN",
    "OSS_REGION",
    "OSS_ENDPOINT",
    "TENCENTCLOUD_SECRET_ID",
    "TENCENTCLOUD_SECRET_KEY",
    "TENCENTCLOUD_REGION",
    "TENCENTCLOUD_COS_ENDPOINT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

/// The variables that name a proxy, which the client uses instead of the host.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Credentials and endpoints. `Debug` prints which are known, never their values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    known: BTreeMap<&'static str, String>,
    file: Option<CredentialsFile>,
}

/// AWS' shared credentials file, and what is known without it.
#[derive(Clone, PartialEq, Eq)]
struct CredentialsFile {
    path: PathBuf,
    variables: BTreeMap<&'static str, String>,
}

impl Access {
    /// Takes every variable of [`VARIABLES`] for which `look_up` has a nonempty value.
    pub fn gather(mut look_up: impl FnMut(&str) -> Option<String>) -> Access {
        let known = VARIABLES.into_iter().filter_map(|name| Some((name, look_up(name)?)));
        Access { known: known.filter(|(_, value)| !value.is_empty()).collect(), file: None }
    }

    /// Fills in the keys of a profile from AWS' shared credentials file, where the variables name none. A file that cannot be
    /// read has none.
    pub fn with_credentials_file(self, path: PathBuf) -> Access {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let file = CredentialsFile { path, variables: self.known.clone() };
        Access { file: Some(file), ..self.with_profile(&text) }
    }

    /// The same with what the credentials file has now: keys of a session expire, and whoever renews them writes them there.
    pub fn renewed(&self) -> Access {
        let text = self.file.as_ref().and_then(|file| std::fs::read_to_string(&file.path).ok());
        match (&self.file, text) {
            (Some(file), Some(text)) => {
                Access { known: file.variables.clone(), file: self.file.clone() }.with_profile(&text)
            }
            (Some(_) | None, _) => self.clone(),
        }
    }

    fn with_profile(mut self, text: &str) -> Access {
        if self.get("AWS_ACCESS_KEY_ID").is_some() {
            return self;
        }
        let wanted = self.get("AWS_PROFILE").unwrap_or("default").to_owned();
        let mut is_wanted = false;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_wanted = section.trim().trim_start_matches("profile ").trim() == wanted;
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_wanted && !line.starts_with('#')) else {
                continue;
            };
            let name = match key.trim() {
                "aws_access_key_id" => "AWS_ACCESS_KEY_ID",
                "aws_secret_access_key" => "AWS_SECRET_ACCESS_KEY",
                "aws_session_token" => "AWS_SESSION_TOKEN",
                "region" => "AWS_REGION",
                _ => continue,
            };
            self.known.entry(name).or_insert_with(|| value.trim().to_owned());
        }
        self
    }

    /// Whether requests go to a proxy, so that probing the host is meaningless.
    pub(crate) fn has_proxy(&self) -> bool {
        self.first(&PROXIES).is_some()
    }

    /// The value of the first of these variables that is known.
    pub(crate) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.known.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_never_printed() {
        let access = Access::gather(|name| name.starts_with("AWS_").then(|| "hush".to_owned()));
        let printed = format!("{access:?}");
        assert!(printed.contains("AWS_SECRET_ACCESS_KEY") && !printed.contains("hush"), "{printed}");
    }

    #[test]
    fn profiles_fill_in_what_no_variable_says() {
        let text = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n# c\n[profile other]\naws_access_key_id=C\nregion = r\n";
        let default = Access::default().with_profile(text);
        assert_eq!([default.get("AWS_ACCESS_KEY_ID"), default.get("AWS_SECRET_ACCESS_KEY")], [Some("A"), Some("B")]);
        let other = Access::gather(|name| (name == "AWS_PROFILE").then(|| "other".into())).with_profile(text);
        assert_eq!([other.get("AWS_ACCESS_KEY_ID"), other.get("AWS_REGION")], [Some("C"), Some("r")]);
        let said = Access::gather(|name| (name == "AWS_ACCESS_KEY_ID").then(|| "V".into())).with_profile(text);
        assert_eq!([said.get("AWS_ACCESS_KEY_ID"), said.get("AWS_SECRET_ACCESS_KEY")], [Some("V"), None]);
    }

    #[test]
    fn keys_of_the_file_are_read_again_and_variables_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("credentials");
        let write = |key: &str, token: &str| {
            let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=S\n{token}region=r\n");
            std::fs::write(&path, text).expect("a file");
        };
        write("A", "aws_session_token=T\n");
        let region = |name: &str| (name == "AWS_REGION").then(|| "V".to_owned());
        let access = Access::gather(region).with_credentials_file(path.clone());
        let of = |access: &Access| {
            ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION"].map(|name| access.get(name).map(str::to_owned))
        };
        let expected = |values: [Option<&str>; 3]| values.map(|value| value.map(str::to_owned));
        assert_eq!(of(&access), expected([Some("A"), Some("T"), Some("V")]));
        write("B", "");
        assert_eq!(of(&access), expected([Some("A"), Some("T"), Some("V")]), "until it is renewed");
        let renewed = access.renewed();
        assert_eq!(of(&renewed), expected([Some("B"), None, Some("V")]));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(renewed.renewed(), renewed, "a file that is being replaced");
    }
}
