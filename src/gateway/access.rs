//! Who may talk to the gateway: nobody, unless listed (`spec/decisions.md` §7, `spec/hermes-gateway.md` §2.6).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use hookgate_adapters::{Platform, Source};

use crate::config::Allowed;

/// Strangers are logged once each; beyond so many the memory of it starts anew.
const REMEMBERED_STRANGERS: usize = 1_000;

/// The lists that decide.
#[derive(Debug, Default)]
pub(super) struct Access {
    everywhere: Allowed,
    by_platform: HashMap<Platform, Allowed>,
    strangers: Mutex<HashSet<(Platform, String)>>,
}

impl Access {
    /// `everywhere` are the `GATEWAY_…` lists, `by_platform` the platforms' own.
    pub(super) fn new(everywhere: Allowed, by_platform: HashMap<Platform, Allowed>) -> Self {
        Self { everywhere, by_platform, strangers: Mutex::default() }
    }

    /// Whether the sender may talk. The local chat is guarded by its token; a webhook by its signature.
    pub(super) fn allows(&self, source: &Source) -> bool {
        if matches!(source.platform, Platform::Local | Platform::Webhook) {
            return true;
        }
        let Some(user) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
            return false;
        };
        let listed = |list: &Allowed| list.all || list.users.iter().any(|id| id == "*" || id == user);
        listed(&self.everywhere) || self.by_platform.get(&source.platform).is_some_and(listed)
    }

    /// Tells the operator, once per stranger, who was turned away and how to let them in.
    pub(super) fn turn_away(&self, source: &Source) {
        let user = source.user_id.clone().unwrap_or_default();
        {
            let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
            if strangers.len() >= REMEMBERED_STRANGERS {
                strangers.clear();
            }
            if !strangers.insert((source.platform, user.clone())) {
                return;
            }
        }
        let variable = format!("{}_ALLOWED_USERS", source.platform.as_str().to_uppercase());
        tracing::warn!(
            platform = %source.platform, chat_id = %source.chat_id, user_id = %user,
            "A message from somebody who is not allowed was dropped; to let them in, add {user} to {variable} in the home's .env."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hookgate_adapters::ChatType;

    fn telegram(user: Option<&str>) -> Source {
        Source {
            platform: Platform::Telegram,
            account: String::new(),
            chat_id: "7".into(),
            chat_name: None,
            chat_type: ChatType::Dm,
            user_id: user.map(Into::into),
            user_name: None,
            thread_id: None,
            is_bot: false,
        }
    }

    fn list(users: &[&str], all: bool) -> Allowed {
        Allowed { users: users.iter().map(ToString::to_string).collect(), all }
    }

    #[test]
    fn nobody_by_default() {
        assert!(!Access::default().allows(&telegram(Some("7"))));
    }

    #[test]
    fn both_lists_and_the_star_and_the_flag_allow() {
        let on_telegram = |allowed| HashMap::from([(Platform::Telegram, allowed)]);
        assert!(Access::new(list(&["7"], false), HashMap::new()).allows(&telegram(Some("7"))));
        assert!(Access::new(Allowed::default(), on_telegram(list(&["7"], false))).allows(&telegram(Some("7"))));
        assert!(Access::new(Allowed::default(), on_telegram(list(&["*"], false))).allows(&telegram(Some("66"))));
        assert!(Access::new(list(&[], true), HashMap::new()).allows(&telegram(Some("66"))));
        assert!(!Access::new(Allowed::default(), on_telegram(list(&["7"], false))).allows(&telegram(Some("77"))));
    }

    #[test]
    fn a_message_without_a_sender_is_never_allowed() {
        assert!(!Access::new(list(&["*"], true), HashMap::new()).allows(&telegram(None)));
    }
}
