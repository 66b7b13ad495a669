//! `hookgate config check|show|path`.

use clap::Subcommand;
use serde_json::json;

use super::Context;
use crate::config::{self, ConfigFile, Problem, Severity};
use crate::error::UserError;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// List every problem with its place and what was probably meant; exit 1 if there is an error
    Check {
        /// Warnings count as errors
        #[arg(long)]
        strict: bool,
    },
    /// Print the effective configuration, secrets masked
    Show,
    /// Print the files the configuration is read from
    Path,
    /// Print the JSON Schema of config.yaml, for editors
    Schema,
}

pub(super) fn run(context: &Context, command: &ConfigCommand) -> Result<u8, UserError> {
    match command {
        ConfigCommand::Check { strict } => Ok(check(context, *strict)),
        ConfigCommand::Show => {
            let loaded = context.quiet_config()?;
            context.output.result(&config::redacted_json(&loaded), || config::redacted_yaml(&loaded));
            Ok(0)
        }
        ConfigCommand::Schema => {
            let schema = config::json_schema();
            context.output.result(&schema, || serde_json::to_string_pretty(&schema).unwrap_or_default());
            Ok(0)
        }
        ConfigCommand::Path => {
            let files = context.load().files;
            context.output.result(&files, || {
                let line = |file: &ConfigFile| {
                    let note = if file.exists { "" } else { " (not there)" };
                    format!("{}{note}", file.path.display())
                };
                files.iter().map(line).collect::<Vec<_>>().join("\n")
            });
            Ok(0)
        }
    }
}

fn check(context: &Context, strict: bool) -> u8 {
    let mut problems: Vec<Problem> = context.load().problems;
    if strict {
        problems.iter_mut().for_each(|problem| problem.severity = Severity::Error);
    }
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let report = json!({ "ok": errors == 0, "problems": problems });
    context.output.result(&report, || {
        let mut lines: Vec<String> = problems
            .iter()
            .map(|problem| {
                let kind = if problem.severity == Severity::Error { "error" } else { "warning" };
                crate::redact::redact(&format!("{kind}: {problem}"))
            })
            .collect();
        lines.push(match (errors, problems.len()) {
            (0, 0) => "The configuration has no problems.".into(),
            (0, warnings) => format!("The configuration can be used; warnings: {warnings}."),
            (errors, _) => format!("The configuration cannot be used; errors: {errors}."),
        });
        lines.join("\n")
    });
    u8::from(errors > 0)
}
