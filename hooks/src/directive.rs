//! What a deciding hook may answer. Which answers mean something for which event is in [`crate::Answers`].

/// An answer of a hook, and the combined answer of all hooks to one question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Directive {
    /// Go on. From a hook this is an explicit allow: it ends the search for an answer to `pre_gateway_dispatch` and means
    /// nothing elsewhere. A hook that has no opinion answers `None`.
    #[default]
    Allow,
    /// Drop the message. `reply` is sent once to a sender who has access, and not at all to one who has not.
    Skip {
        /// What the sender is told.
        reply: Option<String>,
    },
    /// Go on with this text in place of the message's; it may be empty, and may be a command.
    Rewrite {
        /// The new text.
        text: String,
    },
    /// Do not run the command; say `message`, or that a hook blocked it.
    Deny {
        /// What the sender is told; `None` for the gateway's own sentence.
        message: Option<String>,
    },
    /// The hook has done what the command asks for; say `message`, or nothing.
    Handled {
        /// What the sender is told.
        message: Option<String>,
    },
    /// Run another command in its place. No second command event is fired for it.
    RewriteCommand {
        /// Its name, without the slash; never empty.
        name: String,
        /// Everything after the name.
        args: String,
    },
    /// Do not do it. Outranks every answer that lets the event pass, whoever gave it first. Also the outcome of a
    /// `fail_closed` hook that did not answer, on every deciding event.
    Block {
        /// Why, for the person or the model concerned.
        reason: String,
    },
    /// A person must agree before the tool runs.
    Approve {
        /// Why, for that person.
        message: Option<String>,
        /// What a remembered approval covers; `None`: the tool.
        rule_key: Option<String>,
    },
    /// Run the tool with these arguments over its own: keys that are not named stay.
    Modify {
        /// The arguments to set.
        args: serde_json::Map<String, serde_json::Value>,
    },
    /// Text for the model, added to the user's message of this turn. Combined answers are joined with an empty line.
    Context(String),
    /// Use this text in place of the one that was shown.
    Replace(String),
}

impl Directive {
    /// The answer's name, for logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip { .. } => "skip",
            Self::Rewrite { .. } => "rewrite",
            Self::Deny { .. } => "deny",
            Self::Handled { .. } => "handled",
            Self::RewriteCommand { .. } => "rewrite_command",
            Self::Block { .. } => "block",
            Self::Approve { .. } => "approve",
            Self::Modify { .. } => "modify",
            Self::Context(_) => "context",
            Self::Replace(_) => "replace",
        }
    }

    /// Whether the event goes no further. After such an answer nobody else needs to be asked.
    pub(crate) fn stops(&self) -> bool {
        matches!(self, Self::Skip { .. } | Self::Deny { .. } | Self::Handled { .. } | Self::Block { .. })
    }
}
