//! Keeps what a model was asked and what it answered, one JSON object per line, for [`Replay`](super::Replay) and for
//! people. Without the key, and without any other secret the gateway knows.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{About, Model, ModelError, ModelReply, ModelRequest, OnDelta};
use crate::redact::redact;

/// A model whose exchanges are kept.
pub struct Recording {
    model: Arc<dyn Model>,
    file: Arc<File>,
}

/// Where they are kept. Grows without a limit: recording is for a time, not for ever.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: Mutex<fs::File>,
    keys: Vec<SecretString>,
    has_failed: AtomicBool,
}

impl File {
    /// Opens or makes the file, mode 0600. What it holds stays. `keys` are masked besides the secrets known everywhere.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn open(path: &Path, keys: Vec<SecretString>) -> std::io::Result<Self> {
        let mut file = fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        // A line that a kill cut off must not swallow the next one.
        if file.seek(SeekFrom::End(-1)).is_ok() {
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), keys, has_failed: AtomicBool::new(false) })
    }

    /// Adds a line. A turn does not fail over it: the first failure is logged.
    fn add(&self, exchange: &Value) {
        let mut line = masked(exchange, &self.keys).to_string();
        line.push('\n');
        let written = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        if let Err(error) = written
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::error!(path = %self.path.display(), %error, "An exchange with the model cannot be recorded.");
        }
    }
}

/// A copy in which no text holds a secret.
pub(super) fn masked(value: &Value, keys: &[SecretString]) -> Value {
    match value {
        Value::String(text) => {
            let keyless = keys.iter().filter(|key| !key.expose_secret().trim().is_empty());
            redact(&keyless.fold(text.clone(), |text, key| text.replace(key.expose_secret().trim(), "[key]"))).into()
        }
        Value::Array(items) => items.iter().map(|item| masked(item, keys)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), masked(value, keys))).collect(),
        other => other.clone(),
    }
}

impl Recording {
    /// `model`, whose exchanges go to `file`.
    pub fn new(model: Arc<dyn Model>, file: Arc<File>) -> Self {
        Self { model, file }
    }
}

#[async_trait]
impl Model for Recording {
    fn about(&self) -> &About {
        self.model.about()
    }

    fn body(&self, request: &ModelRequest) -> Value {
        self.model.body(request)
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        let result = self.model.complete(request, on_delta).await;
        let about = self.model.about();
        let mut exchange = json!({
            "at": Timestamp::now().to_string(),
            "provider": about.provider,
            "model": about.name,
            "last": request.messages.last().map(super::Message::to_value),
            "request": self.model.body(request),
        });
        match &result {
            Ok(reply) => exchange["reply"] = json!(reply),
            Err(error) => {
                exchange["error"] =
                    json!({ "reason": error.reason.as_str(), "status": error.status, "cause": error.cause });
            }
        }
        let file = Arc::clone(&self.file);
        // Waited for, so that lines stand in the order of the answers.
        if let Err(error) = tokio::task::spawn_blocking(move || file.add(&exchange)).await {
            tracing::error!(%error, "An exchange with the model cannot be recorded.");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_private_and_hold_no_key() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.jsonl");
        fs::write(&path, "{\"cut\": ").unwrap();
        let file = File::open(&path, vec![SecretString::from("sk-\"quoted\"")]).unwrap();
        file.add(&json!({ "said": ["my key is sk-\"quoted\""], "n": 1 }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"cut\": \n{\"said\":[\"my key is [key]\"],\"n\":1}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(File::open(home.path(), Vec::new()).is_err());
    }
}
