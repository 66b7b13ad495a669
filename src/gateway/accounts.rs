//! What there is once per account of a platform: adapters, allowlists.

use std::collections::HashMap;

use hookgate_adapters::Platform;

/// Values by platform and account.
#[derive(Debug, Clone)]
pub struct ByAccount<T>(HashMap<Platform, HashMap<String, T>>);

impl<T> Default for ByAccount<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> ByAccount<T> {
    /// The value for an account; empty is the one without a name.
    pub fn get(&self, platform: Platform, account: &str) -> Option<&T> {
        self.0.get(&platform)?.get(account)
    }

    /// The accounts of a platform.
    pub fn of(&self, platform: Platform) -> impl Iterator<Item = (&str, &T)> {
        self.0.get(&platform).into_iter().flatten().map(|(account, value)| (account.as_str(), value))
    }
}

impl<T> FromIterator<(Platform, String, T)> for ByAccount<T> {
    fn from_iter<I: IntoIterator<Item = (Platform, String, T)>>(items: I) -> Self {
        let mut all: HashMap<Platform, HashMap<String, T>> = HashMap::new();
        for (platform, account, value) in items {
            all.entry(platform).or_default().insert(account, value);
        }
        Self(all)
    }
}
