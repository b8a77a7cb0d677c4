//! Where the key of Tencent Cloud comes from: variables, or the file that its tools and libraries read.

use std::collections::BTreeMap;

use crate::aws::wire::signature::AccessKey;

/// The variables that are read, under the names that Tencent's own libraries give them.
pub const VARIABLES: &[&str] =
    &["TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TENCENTCLOUD_TOKEN", "GRADUS_TENCENT_ENDPOINT"];

/// What to do where there is none.
const SET: &str = "set `TENCENTCLOUD_SECRET_ID` and `TENCENTCLOUD_SECRET_KEY`, or write them as `secret_id` and \
                   `secret_key` into the section `default` of `~/.tencentcloud/credentials`";

/// What this machine says about credentials, gathered once by the shell.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TencentSources {
    /// The variables of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, String>,
    /// The text of `~/.tencentcloud/credentials`.
    pub file: String,
}

impl std::fmt::Debug for TencentSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        formatter.debug_struct("TencentSources").field("variables", &names).finish_non_exhaustive()
    }
}

impl TencentSources {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether anything says that machines are rented from Tencent Cloud here. The same variables are those of its object
    /// store.
    pub fn is_set(&self) -> bool {
        self.variable("TENCENTCLOUD_SECRET_ID").is_some() || !self.file.is_empty()
    }

    /// The key that requests are signed with.
    ///
    /// # Errors
    /// Why there is none, with what to do.
    pub fn key(&self) -> Result<AccessKey, String> {
        let (id, secret) = ("TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY");
        match (self.variable(id), self.variable(secret)) {
            (Some(id), Some(secret)) => {
                let session = self.variable("TENCENTCLOUD_TOKEN").map(str::to_owned);
                return Ok(AccessKey { id: id.to_owned(), secret: secret.to_owned(), session });
            }
            (Some(_), None) => return Err(format!("`{id}` is set and `{secret}` is not")),
            (None, Some(_)) => return Err(format!("`{secret}` is set and `{id}` is not")),
            (None, None) => {}
        }
        if self.file.is_empty() {
            return Err(format!("no credentials for Tencent Cloud were found; {SET}"));
        }
        let value = |key: &str| of_default(&self.file, key).filter(|value| !value.is_empty());
        let lacks = |key: &str| format!("`~/.tencentcloud/credentials` has no `{key}` in its section `default`; {SET}");
        let id = value("secret_id").ok_or_else(|| lacks("secret_id"))?;
        let secret = value("secret_key").ok_or_else(|| lacks("secret_key"))?;
        Ok(AccessKey { id: id.to_owned(), secret: secret.to_owned(), session: value("token").map(str::to_owned) })
    }
}

/// The value of a key in the section `default` of a file with sections.
fn of_default<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[default]").skip(1);
    let mut pairs = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_that_has_something_is_used() {
        let check = |variables: &[(&str, &str)], file: &str, expected: &str| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let shown = match (TencentSources { variables, file: file.to_owned() }).key() {
                Ok(key) => format!("{} {} {:?}", key.id, key.secret, key.session),
                Err(why) => why,
            };
            assert!(shown.starts_with(expected), "{shown}\n  is not\n{expected}");
        };
        let (id, secret) = (("TENCENTCLOUD_SECRET_ID", "I"), ("TENCENTCLOUD_SECRET_KEY", "S"));
        let file = "# mine\n[other]\nsecret_id = X\n[default]\nsecret_id = A\nsecret_key=\"B=\"\n[more]\ntoken = T\n";
        check(&[id, secret], file, "I S None");
        check(&[id, secret, ("TENCENTCLOUD_TOKEN", "T")], "", "I S Some(\"T\")");
        check(&[id], file, "`TENCENTCLOUD_SECRET_ID` is set and `TENCENTCLOUD_SECRET_KEY` is not");
        check(&[], file, "A B= None");
        check(&[], "[default]\nsecret_id = A\n", "`~/.tencentcloud/credentials` has no `secret_key` in its section");
        check(&[], "secret_id = A\n", "`~/.tencentcloud/credentials` has no `secret_id`");
        check(&[], "", "no credentials for Tencent Cloud were found; set `TENCENTCLOUD_SECRET_ID`");
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let variables = [("TENCENTCLOUD_SECRET_KEY".to_owned(), "hush".to_owned())].into();
        let shown = format!("{:?}", TencentSources { variables, file: "hush".into() });
        assert!(!shown.contains("hush"), "{shown}");
    }
}
