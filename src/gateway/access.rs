//! Who may talk to the gateway: nobody, unless listed; and what those who may are allowed to do (`spec/decisions.md` §7,
//! `spec/hermes-gateway.md` §2.6).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use hookgate_adapters::{ChatMoved, ChatType, Platform, Source};

use super::commands::Command;
use super::texts;
use crate::config::{Allowed, Roles};

/// Strangers are logged once each; beyond so many the memory of it starts anew.
const REMEMBERED_STRANGERS: usize = 1_000;

/// The lists that decide.
#[derive(Debug, Default)]
pub(super) struct Access {
    everywhere: Allowed,
    by_platform: HashMap<Platform, Allowed>,
    roles: Roles,
    strangers: Mutex<HashSet<(Platform, String)>>,
    /// Chats whose new id was told.
    moved: Mutex<HashSet<(Platform, String)>>,
}

/// Whether anybody but the sender can hear what is said.
fn is_group(source: &Source) -> bool {
    matches!(source.chat_type, ChatType::Group | ChatType::Forum | ChatType::Channel | ChatType::Thread)
}

impl Access {
    /// `everywhere` are the `GATEWAY_…` lists, `by_platform` the platforms' own.
    pub(super) fn new(everywhere: Allowed, by_platform: HashMap<Platform, Allowed>, roles: Roles) -> Self {
        Self { everywhere, by_platform, roles, strangers: Mutex::default(), moved: Mutex::default() }
    }

    /// Whether the sender may talk. The local chat is guarded by its token; a webhook by its signature.
    pub(super) fn allows(&self, source: &Source) -> bool {
        if matches!(source.platform, Platform::Local | Platform::Webhook) {
            return true;
        }
        let lists = self.by_platform.get(&source.platform);
        let names = |listed: &[String], id: &str| listed.iter().any(|one| one == "*" || one == id);
        // Negative ids among the users are chats, as older files of the reference have them.
        let lists_chat = |list: &Allowed| {
            names(&list.group_chats, &source.chat_id)
                || list.group_users.iter().any(|id| id.starts_with('-') && *id == source.chat_id)
        };
        if is_group(source) && lists.is_some_and(lists_chat) {
            return true;
        }
        let Some(user) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
            return false;
        };
        let lists_user =
            |list: &Allowed| list.all || names(&list.users, user) || is_group(source) && names(&list.group_users, user);
        lists_user(&self.everywhere) || lists.is_some_and(lists_user)
    }

    /// Why somebody with access may not run a command, if so. Guests only talk; of the others only owners and admins end a
    /// session that several share. Without any roles everybody may do everything.
    pub(super) fn refusal(&self, source: &Source, command: Option<Command>, shared: bool) -> Option<&'static str> {
        if self.roles.is_empty() || matches!(source.platform, Platform::Local | Platform::Webhook) {
            return None;
        }
        let id = format!("{}:{}", source.platform, source.user_id.as_deref().unwrap_or_default());
        let has = |role: &[String]| role.contains(&id);
        if has(&self.roles.owner) || has(&self.roles.admin) {
            return None;
        }
        let harmless = matches!(command, Some(Command::Help | Command::Start | Command::Status));
        if has(&self.roles.guest) && !harmless {
            return Some(texts::GUESTS_TALK);
        }
        (shared && command == Some(Command::New)).then_some(texts::SHARED_SESSION)
    }

    /// Tells the operator that a group has another id, and which list it must be written into.
    pub(super) fn tell_moved(&self, moved: &ChatMoved, sessions: u64) {
        let ChatMoved { platform, from, to } = moved;
        if !self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert((*platform, to.clone())) {
            return;
        }
        let lists = self.by_platform.get(platform);
        let names = |listed: &[String]| listed.contains(from) && !listed.contains(to);
        let variable = match lists {
            Some(lists) if names(&lists.group_chats) => "GROUP_ALLOWED_CHATS",
            Some(lists) if names(&lists.group_users) => "GROUP_ALLOWED_USERS",
            _ => {
                tracing::info!(%platform, sessions, "The group {from} is now the supergroup {to}; its sessions follow.");
                return;
            }
        };
        let platform = platform.as_str().to_uppercase();
        tracing::warn!(
            sessions,
            "The group {from} is now the supergroup {to}, which is on no list: write {to} for {from} in \
             {platform}_{variable} (or the same list in config.yaml) and restart."
        );
    }

    /// Tells the operator, once per stranger (in a group: once per chat), who was turned away and how to let them in.
    pub(super) fn turn_away(&self, source: &Source) {
        let user = source.user_id.clone().unwrap_or_default();
        let who = if is_group(source) { source.chat_id.clone() } else { user.clone() };
        {
            let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
            if strangers.len() >= REMEMBERED_STRANGERS {
                strangers.clear();
            }
            if !strangers.insert((source.platform, who)) {
                return;
            }
        }
        let platform = source.platform.as_str().to_uppercase();
        let chat = &source.chat_id;
        let how = match (is_group(source), user.is_empty()) {
            (false, _) => format!("add {user} to {platform}_ALLOWED_USERS"),
            (true, true) => format!("add {chat} to {platform}_GROUP_ALLOWED_CHATS"),
            (true, false) => format!(
                "add {user} to {platform}_GROUP_ALLOWED_USERS, or {chat} to {platform}_GROUP_ALLOWED_CHATS for \
                 everybody in it"
            ),
        };
        tracing::warn!(
            platform = %source.platform, chat_id = %chat, user_id = %user,
            "A message from somebody who is not allowed was dropped; to let them in, {how} in the home's .env and restart."
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
        Allowed { users: users.iter().map(ToString::to_string).collect(), all, ..Allowed::default() }
    }

    #[test]
    fn nobody_by_default() {
        assert!(!Access::default().allows(&telegram(Some("7"))));
    }

    #[test]
    fn both_lists_and_the_star_and_the_flag_allow() {
        let on_telegram = |allowed| HashMap::from([(Platform::Telegram, allowed)]);
        assert!(Access::new(list(&["7"], false), HashMap::new(), Roles::default()).allows(&telegram(Some("7"))));
        assert!(
            Access::new(Allowed::default(), on_telegram(list(&["7"], false)), Roles::default())
                .allows(&telegram(Some("7")))
        );
        assert!(
            Access::new(Allowed::default(), on_telegram(list(&["*"], false)), Roles::default())
                .allows(&telegram(Some("66")))
        );
        assert!(Access::new(list(&[], true), HashMap::new(), Roles::default()).allows(&telegram(Some("66"))));
        assert!(
            !Access::new(Allowed::default(), on_telegram(list(&["7"], false)), Roles::default())
                .allows(&telegram(Some("77")))
        );
    }

    #[test]
    fn a_message_without_a_sender_is_never_allowed() {
        assert!(!Access::new(list(&["*"], true), HashMap::new(), Roles::default()).allows(&telegram(None)));
    }

    fn in_group(user: Option<&str>) -> Source {
        Source { chat_id: "-200".into(), chat_type: ChatType::Group, ..telegram(user) }
    }

    #[test]
    fn lists_for_groups_open_groups_and_nothing_else() {
        let strings = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let access = |users: &[&str], chats: &[&str]| {
            let list = Allowed { group_users: strings(users), group_chats: strings(chats), ..Allowed::default() };
            Access::new(Allowed::default(), HashMap::from([(Platform::Telegram, list)]), Roles::default())
        };
        for (access, somebody, nobody) in [
            (access(&["7"], &[]), true, false),
            (access(&["*"], &[]), true, false),
            (access(&[], &["-200"]), true, true),
            (access(&[], &["*"]), true, true),
            (access(&["-200"], &[]), true, true),
            (access(&["-201", "8"], &["-20", "-2001"]), false, false),
        ] {
            assert_eq!(access.allows(&in_group(Some("7"))), somebody, "{access:?}");
            assert_eq!(access.allows(&in_group(None)), nobody, "{access:?}");
            assert!(!access.allows(&telegram(Some("7"))), "{access:?}");
        }
    }

    #[test]
    fn roles_say_who_may_run_what() {
        let ids = |id: &str| vec![format!("telegram:{id}")];
        let roles = Roles { owner: ids("1"), admin: ids("2"), guest: ids("3") };
        let access = Access::new(Allowed::default(), HashMap::new(), roles);
        let may = |user: &str, command, shared| access.refusal(&telegram(Some(user)), command, shared).is_none();
        for user in ["1", "2"] {
            assert!(may(user, Some(Command::New), true) && may(user, None, true));
        }
        assert!(
            !may("3", Some(Command::New), false) && !may("3", Some(Command::Stop), false) && !may("3", None, false)
        );
        assert!(may("3", Some(Command::Help), true) && may("3", Some(Command::Status), true));
        assert!(may("4", Some(Command::New), false) && may("4", Some(Command::Stop), true));
        assert!(!may("4", Some(Command::New), true));
        assert_eq!(Access::default().refusal(&telegram(Some("4")), Some(Command::New), true), None);
    }
}
