//! Who may talk to the gateway: nobody, unless listed; and what those who may are allowed to do (`spec/decisions.md` §7,
//! `spec/hermes-gateway.md` §2.6).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use hookgate_adapters::{ChatMoved, ChatType, Platform, Source};

use super::accounts::ByAccount;
use super::commands::Command;
use super::texts;
use crate::config::{Allowed, Roles};

/// Strangers are logged once each; beyond so many the memory of it starts anew.
const REMEMBERED_STRANGERS: usize = 1_000;

/// The lists that decide.
#[derive(Debug, Default)]
pub(super) struct Access {
    everywhere: Allowed,
    by_account: ByAccount<Allowed>,
    roles: Roles,
    strangers: Mutex<HashSet<(String, String)>>,
    /// Chats whose new id was told.
    moved: Mutex<HashSet<(Platform, String)>>,
}

/// Whether anybody but the sender can hear what is said.
fn is_group(source: &Source) -> bool {
    matches!(source.chat_type, ChatType::Group | ChatType::Forum | ChatType::Channel | ChatType::Thread)
}

impl Access {
    /// `everywhere` are the `GATEWAY_…` lists, `by_account` those of the platforms' accounts.
    pub(super) fn new(everywhere: Allowed, by_account: ByAccount<Allowed>, roles: Roles) -> Self {
        Self { everywhere, by_account, roles, strangers: Mutex::default(), moved: Mutex::default() }
    }

    /// Whether the sender may talk. The local chat is guarded by its token; a webhook by its signature.
    pub(super) fn allows(&self, source: &Source) -> bool {
        if matches!(source.platform, Platform::Local | Platform::Webhook) {
            return true;
        }
        // The platform passes on only those bots that the operator wants to hear (rule 4).
        if source.is_bot {
            return true;
        }
        let lists = self.by_account.get(source.platform, &source.account);
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
            |list: &Allowed| names(&list.users, user) || is_group(source) && names(&list.group_users, user);
        if lists_user(&self.everywhere) || lists.is_some_and(|list| list.all || lists_user(list)) {
            return true;
        }
        // It opens what no list guards (`spec/hermes-gateway.md` §2.6, rule 9).
        let has_list =
            |list: &Allowed| [&list.users, &list.group_users, &list.group_chats].iter().any(|ids| !ids.is_empty());
        self.everywhere.all && !has_list(&self.everywhere) && !lists.is_some_and(has_list)
    }

    /// Why somebody who is not among the admins may not run a command, where admins are listed (§2.6, slash access).
    /// `busy`: the session is at something, so everybody may ask what.
    pub(super) fn refusal_by_list(&self, source: &Source, name: &str, busy: bool) -> Option<String> {
        let lists = self.by_account.get(source.platform, &source.account)?;
        let (admins, commands) = match is_group(source) {
            true => (&lists.group_admins, &lists.group_user_commands),
            false if lists.user_commands.is_empty() => (&lists.admins, &lists.group_user_commands),
            false => (&lists.admins, &lists.user_commands),
        };
        let user = source.user_id.as_deref().unwrap_or_default();
        let is_admin = admins.iter().any(|listed| listed == "*" || listed == user && !user.is_empty());
        let free = ["help", "whoami", "start"].contains(&name) || busy && name == "status";
        let listed = |command: &String| command == "*" || command.trim_start_matches('/').eq_ignore_ascii_case(name);
        if admins.is_empty() || is_admin || free || commands.iter().any(listed) {
            return None;
        }
        Some(texts::admins_only(name, commands))
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

    /// Whether somebody with access may decide about approvals: owners and admins; while there are no roles, everybody whose
    /// turns may use tools.
    pub(super) fn may_approve(&self, source: &Source) -> bool {
        match self.roles.is_empty() || source.platform == Platform::Local {
            true => self.may_use_tools(source),
            false => !source.is_bot && self.is_admin(source),
        }
    }

    /// Whether what they allow for ever holds beyond their own chat.
    pub(super) fn may_allow_everywhere(&self, source: &Source) -> bool {
        source.platform == Platform::Local || self.is_admin(source)
    }

    /// Whether a turn for what they say may use tools: guests only talk, and so do those whom nothing but an open door lets
    /// in (`…_ALLOW_ALL_USERS`, a `*` on a list, a group that is open to everybody in it) and no role names.
    pub(super) fn may_use_tools(&self, source: &Source) -> bool {
        if source.platform == Platform::Local {
            return true;
        }
        if source.is_bot || self.has(&self.roles.guest, source) {
            return false;
        }
        self.is_admin(source) || self.is_known(source)
    }

    fn is_admin(&self, source: &Source) -> bool {
        self.has(&self.roles.owner, source) || self.has(&self.roles.admin, source)
    }

    fn has(&self, role: &[String], source: &Source) -> bool {
        source.user_id.as_deref().is_some_and(|user| role.contains(&format!("{}:{user}", source.platform)))
    }

    /// Whether a list names the sender, not only the group they speak in.
    fn is_known(&self, source: &Source) -> bool {
        let Some(user) = source.user_id.as_deref().filter(|user| !user.is_empty()) else { return false };
        let lists = [Some(&self.everywhere), self.by_account.get(source.platform, &source.account)];
        let names = |list: &[String]| list.iter().any(|one| one == user);
        lists.into_iter().flatten().any(|list| names(&list.users) || is_group(source) && names(&list.group_users))
    }

    /// Tells the operator that a group has another id, and which list it must be written into.
    pub(super) fn tell_moved(&self, moved: &ChatMoved, sessions: u64) {
        let ChatMoved { platform, from, to } = moved;
        if !self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert((*platform, to.clone())) {
            return;
        }
        let names = |listed: &[String]| listed.contains(from) && !listed.contains(to);
        let list = self.by_account.of(*platform).find_map(|(account, lists)| {
            let (variable, key) = match lists {
                lists if names(&lists.group_chats) => ("GROUP_ALLOWED_CHATS", "group_allowed_chats"),
                lists if names(&lists.group_users) => ("GROUP_ALLOWED_USERS", "group_allow_from"),
                _ => return None,
            };
            Some(format!("{} in {}", name_of_list(*platform, account, variable, key), place_of_lists(account)))
        });
        match list {
            None => {
                tracing::info!(%platform, sessions, "The group {from} is now the supergroup {to}; its sessions follow.");
            }
            Some(list) => tracing::warn!(
                sessions,
                "The group {from} is now the supergroup {to}, which is on no list: write {to} for {from} in {list} and \
                 restart."
            ),
        }
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
            if !strangers.insert((source.platform.with_account(&source.account), who)) {
                return;
            }
        }
        let chat = &source.chat_id;
        let list = |variable, key| name_of_list(source.platform, &source.account, variable, key);
        let users = || list("ALLOWED_USERS", "allow_from");
        let group_users = || list("GROUP_ALLOWED_USERS", "group_allow_from");
        let group_chats = || list("GROUP_ALLOWED_CHATS", "group_allowed_chats");
        let how = match (is_group(source), user.is_empty()) {
            (false, true) => {
                tracing::info!(chat_id = %chat, "A message without a sender was dropped.");
                return;
            }
            (false, false) => format!("add {user} to {}", users()),
            (true, true) => format!("add {chat} to {}", group_chats()),
            (true, false) => {
                format!("add {user} to {}, or {chat} to {} for everybody in it", group_users(), group_chats())
            }
        };
        tracing::warn!(
            platform = %source.platform.with_account(&source.account), chat_id = %chat, user_id = %user,
            "A message from somebody who is not allowed was dropped; to let them in, {how} in {} and restart.",
            place_of_lists(&source.account)
        );
    }
}

/// The name of an allowlist: a variable, or a key for an account with a name.
fn name_of_list(platform: Platform, account: &str, variable: &str, key: &str) -> String {
    match account {
        "" => format!("{}_{variable}", platform.as_str().to_uppercase()),
        account => format!("platforms.{platform}.accounts.{account}.{key}"),
    }
}

/// Where that is set.
fn place_of_lists(account: &str) -> &'static str {
    if account.is_empty() { "the home's .env" } else { "config.yaml" }
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

    fn on_telegram(list: Allowed) -> ByAccount<Allowed> {
        [(Platform::Telegram, String::new(), list)].into_iter().collect()
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
        assert!(Access::new(list(&["7"], false), ByAccount::default(), Roles::default()).allows(&telegram(Some("7"))));
        assert!(
            Access::new(Allowed::default(), on_telegram(list(&["7"], false)), Roles::default())
                .allows(&telegram(Some("7")))
        );
        assert!(
            Access::new(Allowed::default(), on_telegram(list(&["*"], false)), Roles::default())
                .allows(&telegram(Some("66")))
        );
        assert!(Access::new(list(&[], true), ByAccount::default(), Roles::default()).allows(&telegram(Some("66"))));
        for (everywhere, own) in [(list(&["7"], true), list(&[], false)), (list(&[], true), list(&["7"], false))] {
            let access = Access::new(everywhere, on_telegram(own), Roles::default());
            assert!(access.allows(&telegram(Some("7"))) && !access.allows(&telegram(Some("66"))), "a list guards");
        }
        assert!(
            !Access::new(Allowed::default(), on_telegram(list(&["7"], false)), Roles::default())
                .allows(&telegram(Some("77")))
        );
    }

    #[test]
    fn a_message_without_a_sender_is_never_allowed() {
        assert!(!Access::new(list(&["*"], true), ByAccount::default(), Roles::default()).allows(&telegram(None)));
    }

    fn in_group(user: Option<&str>) -> Source {
        Source { chat_id: "-200".into(), chat_type: ChatType::Group, ..telegram(user) }
    }

    #[test]
    fn lists_for_groups_open_groups_and_nothing_else() {
        let strings = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let access = |users: &[&str], chats: &[&str]| {
            let list = Allowed { group_users: strings(users), group_chats: strings(chats), ..Allowed::default() };
            Access::new(Allowed::default(), on_telegram(list), Roles::default())
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
    fn only_those_who_are_named_use_tools_and_approve() {
        let strings = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let named = Allowed { users: strings(&["7", "*"]), group_users: strings(&["8", "-200"]), ..Allowed::default() };
        let lists = Allowed { group_chats: strings(&["-200"]), all: true, ..named };
        let access = |roles: Roles| Access::new(Allowed::default(), on_telegram(lists.clone()), roles);
        let bot = Source { is_bot: true, ..telegram(Some("7")) };
        for (source, tools) in [
            (telegram(Some("7")), true),
            (in_group(Some("7")), true),
            (in_group(Some("8")), true),
            (telegram(Some("8")), false),
            (telegram(Some("9")), false),
            (in_group(Some("9")), false),
            (in_group(None), false),
            (bot, false),
        ] {
            let open = access(Roles::default());
            assert_eq!((open.may_use_tools(&source), open.may_approve(&source)), (tools, tools), "{source:?}");
            assert!(!open.may_allow_everywhere(&source));
        }
        let ids = |id: &str| vec![format!("telegram:{id}")];
        let roles = access(Roles { owner: ids("1"), admin: ids("9"), guest: ids("7") });
        for (user, tools, approves) in [("1", true, true), ("9", true, true), ("7", false, false), ("5", false, false)]
        {
            let source = telegram(Some(user));
            assert_eq!((roles.may_use_tools(&source), roles.may_approve(&source)), (tools, approves), "{user}");
            assert_eq!(roles.may_allow_everywhere(&source), approves);
        }
        assert!(roles.may_use_tools(&in_group(Some("8"))) && !roles.may_approve(&in_group(Some("8"))));
    }

    #[test]
    fn roles_say_who_may_run_what() {
        let ids = |id: &str| vec![format!("telegram:{id}")];
        let roles = Roles { owner: ids("1"), admin: ids("2"), guest: ids("3") };
        let access = Access::new(Allowed::default(), ByAccount::default(), roles);
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
