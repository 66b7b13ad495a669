//! The model of a fresh install: answers with the text it was given. Needs no network, no key and no configuration.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{About, Model, ModelError, ModelReply, ModelRequest, OnDelta};

/// Into how many pieces an answer is cut at most.
const PIECES: usize = 4;

/// Answers with [`ModelRequest::plain_text`].
#[derive(Debug)]
pub struct Echo {
    about: About,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            about: About {
                provider: "echo",
                name: "echo".to_owned(),
                base_url: String::new(),
                api_mode: "chat_completions",
            },
        }
    }
}

#[async_trait]
impl Model for Echo {
    fn about(&self) -> &About {
        &self.about
    }

    fn body(&self, request: &ModelRequest) -> Value {
        json!({ "model": self.about.name, "messages": [{ "role": "user", "content": request.plain_text }] })
    }

    async fn complete(&self, request: &ModelRequest, on_delta: &mut OnDelta<'_>) -> Result<ModelReply, ModelError> {
        for piece in pieces(&request.plain_text) {
            on_delta(piece);
            tokio::task::yield_now().await;
        }
        Ok(ModelReply {
            text: request.plain_text.clone(),
            finish_reason: Some("stop".to_owned()),
            model: Some(self.about.name.clone()),
            ..ModelReply::default()
        })
    }
}

/// Cuts `text` into at most [`PIECES`] pieces of about the same length, none of them empty.
fn pieces(mut text: &str) -> Vec<&str> {
    let target = text.len().div_ceil(PIECES).max(1);
    let mut pieces = Vec::with_capacity(PIECES);
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.ceil_char_boundary(target));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_text_and_are_few() {
        for text in ["", "a", "hello there", "grüße 👋🏽 an alle", &"x".repeat(10_000)] {
            let pieces = pieces(text);
            assert_eq!(pieces.concat(), text);
            assert!(pieces.len() <= PIECES, "{}", pieces.len());
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
