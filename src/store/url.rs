//! `storage.url`: which database, and how to get there. It may hold a password, so it shows itself without one.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

use super::StoreError;

/// What stands in a password's place.
const MASK: &str = "***";
/// How a Postgres address is written.
const POSTGRES_FORM: &str = "write `postgres://user:password@host:5432/database`, with %-codes for the characters \
                             : / ? # @ % in the user and the password";
/// How a file is named.
const SQLITE_FORM: &str = "write `sqlite:hookgate.db`";
/// What may stand after the `?` of a Postgres address.
const PARAMETERS: [&str; 10] =
    ["host", "port", "user", "password", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "options"];

/// A database's address: `sqlite:PATH`, relative to the home, or `postgres://user:password@host:port/database`. `Display`
/// and `Debug` leave the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

/// Why an address cannot be used, without anything secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {suggestion}")]
pub struct UnfitUrl {
    /// What is wrong with it.
    pub message: String,
    /// What to write.
    pub suggestion: &'static str,
}

/// The databases there are, each with what its driver needs of the address.
pub(super) enum Address<'a> {
    /// The path as it is written.
    Sqlite(&'a str),
    Postgres(Url),
}

impl StoreUrl {
    /// Whether it names a database in a way that can be used, as far as that can be told without trying.
    pub fn check(&self) -> Result<(), UnfitUrl> {
        self.address().map(drop)
    }

    /// Every password in it, as written and as meant, for redaction.
    pub fn secrets(&self) -> Vec<String> {
        let Ok(Address::Postgres(url)) = self.address() else { return Vec::new() };
        let mut secrets = Vec::new();
        if let Some(written) = url.password() {
            secrets.push(written.to_owned());
            secrets.push(percent_decode_str(written).decode_utf8_lossy().into_owned());
        }
        secrets.extend(url.query_pairs().filter(|(key, _)| key == "password").map(|(_, value)| value.into_owned()));
        secrets.sort_unstable();
        secrets.dedup();
        secrets
    }

    pub(super) fn address(&self) -> Result<Address<'_>, UnfitUrl> {
        let unfit = |message: &str, suggestion| Err(UnfitUrl { message: message.to_owned(), suggestion });
        let Some((scheme, rest)) = self.0.split_once(':') else {
            return unfit("the address of a database begins with `sqlite:` or `postgres:`", SQLITE_FORM);
        };
        match scheme.to_ascii_lowercase().as_str() {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.trim_start_matches('/').is_empty() {
                    return unfit("the database's file is missing", SQLITE_FORM);
                }
                if path.contains(['?', '\0']) || path == ":memory:" {
                    return unfit("this does not name a file", SQLITE_FORM);
                }
                Ok(Address::Sqlite(path))
            }
            "postgres" | "postgresql" => postgres(&self.0).map(Address::Postgres),
            // The rest may hold a password, so only the scheme is repeated.
            _ => unfit(
                &format!("the address of a database begins with `sqlite:` or `postgres:`, not with {scheme:?}"),
                SQLITE_FORM,
            ),
        }
    }
}

fn postgres(text: &str) -> Result<Url, UnfitUrl> {
    let unfit = |message: String| Err(UnfitUrl { message, suggestion: POSTGRES_FORM });
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return unfit(format!("the address of the database cannot be read: {error}")),
    };
    // A password with one of these characters would be taken for another part of the address, and be shown.
    if url.fragment().is_some() || url.path().contains('@') || url.query().is_some_and(|query| query.contains('@')) {
        return unfit("the address of the database has a `#` or `@` where none can be".to_owned());
    }
    if url.path().trim_matches('/').contains('/') {
        return unfit("the address of the database names more than one database".to_owned());
    }
    if url.cannot_be_a_base()
        || url.path().trim_matches('/').is_empty() && url.query_pairs().all(|(key, _)| key != "dbname")
    {
        return unfit("the address names no database".to_owned());
    }
    for (key, _) in url.query_pairs() {
        if !PARAMETERS.contains(&&*key) {
            return unfit(format!("the address of the database has the unknown parameter {key:?}"));
        }
    }
    Ok(url)
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Ok(Address::Sqlite(_)) => f.write_str(&self.0),
            Ok(Address::Postgres(mut url)) => {
                if url.password().is_some() {
                    // Only an address without a host refuses it, and that has no password.
                    let _ = url.set_password(Some(MASK));
                }
                if url.query().is_some() {
                    let pairs: Vec<_> = url.query_pairs().into_owned().collect();
                    let shown = pairs.iter().map(|(key, value)| (key, if key == "password" { MASK } else { value }));
                    url.query_pairs_mut().clear().extend_pairs(shown);
                }
                write!(f, "{url}")
            }
            Err(_) => match self.0.split_once(':') {
                Some((scheme, _)) => write!(f, "{scheme}:{MASK}"),
                None => f.write_str(MASK),
            },
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

impl From<String> for StoreUrl {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for StoreUrl {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&StoreUrl> for StoreUrl {
    fn from(url: &StoreUrl) -> Self {
        url.clone()
    }
}

impl From<UnfitUrl> for StoreError {
    fn from(unfit: UnfitUrl) -> Self {
        Self::Unusable(format!("storage.url cannot be used: {unfit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown_and_always_known() {
        for (written, shown, secrets) in [
            ("sqlite:hookgate.db", "sqlite:hookgate.db", vec![]),
            ("postgres://alice@db/x", "postgres://alice@db/x", vec![]),
            ("postgres://alice:hunter2@db:5433/x", "postgres://alice:***@db:5433/x", vec!["hunter2"]),
            (
                "postgresql://alice:hunter%2F2%26+@%2Frun%2Fpg/x?sslmode=require",
                "postgresql://alice:***@%2Frun%2Fpg/x?sslmode=require",
                vec!["hunter%2F2%26+", "hunter/2&+"],
            ),
            (
                "postgres:///x?host=/run/pg&password=hunter2",
                "postgres:///x?host=%2Frun%2Fpg&password=***",
                vec!["hunter2"],
            ),
        ] {
            let url = StoreUrl::from(written);
            assert_eq!(url.check(), Ok(()), "{written}");
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("{shown:?}"));
            assert_eq!(url.secrets(), secrets, "{written}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_without_secrets() {
        for (written, part) in [
            ("hookgate.db", "begins with"),
            ("mysql://alice:hunter2@db/x", "\"mysql\""),
            ("sqlite:", "file is missing"),
            ("sqlite:///", "file is missing"),
            ("sqlite::memory:", "does not name a file"),
            ("sqlite:a.db?mode=ro", "does not name a file"),
            ("postgres:hunter2", "no database"),
            ("postgres://alice:hunter2@db", "names no database"),
            ("postgres://alice:hunter2@db/", "names no database"),
            ("postgres://alice:hunter2@db/x/y", "more than one"),
            ("postgres://alice:hunter2@db:port/x", "port"),
            ("postgres://alice:1/hunter2@db/x", "`@`"),
            ("postgres://alice:1?hunter2@db/x", "`@`"),
            ("postgres://alice:1#hunter2@db/x", "`#`"),
            ("postgres://alice:hunter2@db/x?sslmod=require", "\"sslmod\""),
            ("postgres://:hunter2@/x", "cannot be read"),
        ] {
            let url = StoreUrl::from(written);
            let told = url.check().unwrap_err().to_string();
            assert!(told.contains(part), "{written}: {told}");
            for text in [told, url.to_string(), format!("{url:?}")] {
                assert!(!text.contains("hunter2"), "{text}");
            }
        }
    }
}
