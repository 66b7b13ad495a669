//! The tools that the configuration describes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hookgate_hooks::process::Processes;
use reqwest::Url;
use secrecy::ExposeSecret as _;

use super::Tool;
use super::people::{Clarify, SendMessage};
use super::process::{BackgroundProcesses, BackgroundSettings, Process};
use super::read_file::ReadFile;
use super::roots::FileRules;
use super::search_files::SearchFiles;
use super::terminal::{Terminal, TerminalSettings};
use super::todo::Todo;
use super::web_extract::{WebExtract, WebSettings};
use super::web_search::WebSearch;
use super::write_file::{Patch, WriteFile};
use crate::config::Config;

/// How long a page or a search may take.
const WEB_TIME: Duration = Duration::from_secs(20);
/// Commands that run at once in the foreground; more wait for their turn.
const PROCESSES: usize = 64;

/// All tools, and what they keep running beside the turns.
pub struct Toolbox {
    /// Without those that are disabled.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Ended with their sessions and with the gateway.
    pub background: Arc<BackgroundProcesses>,
}

impl Toolbox {
    /// What `terminal`, `files`, `web`, `limits` and `secrets.pass_to_tools` describe, without `agent.disabled_toolsets`.
    ///
    /// # Errors
    /// When the settings can never work; the sentence names the key of the configuration.
    pub fn from_config(config: &Config) -> anyhow::Result<Self> {
        let output_bytes = config.limits.tool_output_bytes;
        let background =
            Arc::new(BackgroundProcesses::new(BackgroundSettings { output_bytes, ..BackgroundSettings::default() }));
        let env =
            config.tool_env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
        let terminal = TerminalSettings {
            default_timeout: config.terminal.timeout,
            longest_timeout: config.terminal.max_timeout,
            output_bytes,
            env,
            ..TerminalSettings::default()
        };
        let files = FileRules::new(config.files.roots.clone(), &config.files.deny, &config.home, output_bytes);
        let files = Arc::new(files.context("files.deny holds a glob that cannot be read")?);
        let mut tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(Terminal::new(terminal, Processes::new(PROCESSES), Arc::clone(&background))),
            Arc::new(Process::new(Arc::clone(&background))),
            Arc::new(ReadFile::new(Arc::clone(&files))),
            Arc::new(WriteFile::new(Arc::clone(&files))),
            Arc::new(Patch::new(Arc::clone(&files))),
            Arc::new(SearchFiles::new(files)),
            Arc::new(SendMessage),
            Arc::new(Clarify),
            Arc::new(Todo::default()),
        ];
        let web = WebSettings {
            proxies: config.proxies.clone(),
            allow_private: config.web.allow_private.iter().map(|(host, port)| host_and_port(host, *port)).collect(),
            output_bytes,
            timeout: WEB_TIME,
        };
        if let Some(address) = &config.web.search_url {
            let address = Url::parse(address).context("web.search_url is not an address")?;
            tools.push(Arc::new(WebSearch::new(address, config.web.search_api_key.clone(), web.clone())?));
        }
        tools.push(Arc::new(WebExtract::new(web)?));
        tools.retain(|tool| !config.agent.disabled_tools.iter().any(|disabled| disabled == tool.name()));
        Ok(Self { tools, background })
    }
}

/// As addresses write it: IPv6 in brackets.
fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
