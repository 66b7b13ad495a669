//! Buttons below a message, and the short text that answers who presses one.

use teloxide::types::{InlineKeyboardButton, InlineKeyboardMarkup};
use unicode_segmentation::UnicodeSegmentation as _;

use super::api::Refusal;
use crate::{Button, LONGEST_TOAST};

/// The keyboard of a message; `None` without buttons, since Telegram refuses an empty row.
pub(super) fn keyboard(buttons: &[Vec<Button>]) -> Option<InlineKeyboardMarkup> {
    let rows = buttons.iter().filter(|row| !row.is_empty());
    let rows = rows.map(|row| row.iter().map(|button| InlineKeyboardButton::callback(&button.label, &button.data)));
    let keyboard = InlineKeyboardMarkup::new(rows);
    (!keyboard.inline_keyboard.is_empty()).then_some(keyboard)
}

/// Whether Telegram refuses the keyboard, and not the message.
pub(super) fn are_refused(refusal: &Refusal) -> bool {
    refusal.code == 400
        && ["button", "keyboard", "reply markup", "reply_markup"].iter().any(|phrase| refusal.says(phrase))
}

/// A text that Telegram takes as a toast; `None` when there is nothing to show.
pub(super) fn toast(text: &str) -> Option<String> {
    let text = text.trim();
    let units = |text: &str| text.encode_utf16().count();
    if units(text) <= LONGEST_TOAST {
        return (!text.is_empty()).then(|| text.to_owned());
    }
    let mut cut = String::new();
    let mut left = LONGEST_TOAST - 1;
    for grapheme in text.graphemes(true) {
        let Some(rest) = left.checked_sub(units(grapheme)) else { break };
        left = rest;
        cut.push_str(grapheme);
    }
    cut.push('…');
    Some(cut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_become_a_keyboard() {
        let rows = [vec![Button::new("Yes", "y"), Button::new("No", "n")], vec![], vec![Button::new("Never", "x")]];
        let keyboard = serde_json::to_value(keyboard(&rows)).unwrap();
        let button = |text: &str, data: &str| json!({"text": text, "callback_data": data});
        let expected = json!({"inline_keyboard": [[button("Yes", "y"), button("No", "n")], [button("Never", "x")]]});
        assert_eq!(keyboard, expected);
        assert_eq!((super::keyboard(&[]), super::keyboard(&[vec![]])), (None, None));
    }

    #[test]
    fn a_toast_fits() {
        assert_eq!((toast(""), toast(" \n")), (None, None));
        for fits in ["Approved.", &"x".repeat(200), &"😀".repeat(100)] {
            assert_eq!(toast(fits).as_deref(), Some(fits));
        }
        assert_eq!(toast(&"x".repeat(201)), Some(format!("{}…", "x".repeat(199))));
        assert_eq!(toast(&"😀".repeat(101)), Some(format!("{}…", "😀".repeat(99))));
        assert_eq!(toast(&format!("a{}", "\u{301}".repeat(300))).as_deref(), Some("…"));
    }
}
