//! The tool `search_files`: lines that match a regular expression, in the files below a directory. Bounded in time, files
//! and results; it ends with the turn that asked.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::encoding::Encoding;
use super::roots::{FileRules, blocking, glob_of};
use super::{Tool, ToolCall, ToolError};
use crate::redact::redact;

const RESULTS: u64 = 50;
const MOST_RESULTS: u64 = 1_000;
/// Larger files are passed over, and counted.
const LARGEST: u64 = 10 << 20;
const MOST_FILES: usize = 100_000;
const TIME: Duration = Duration::from_secs(10);
/// The longest line that is shown, in characters.
const LONGEST_LINE: usize = 300;
/// What nobody looks for text in.
const PASSED_OVER: [&str; 1] = [".git"];

/// The tool.
pub struct SearchFiles(Arc<FileRules>);

impl SearchFiles {
    /// Searches within `rules`.
    pub fn new(rules: Arc<FileRules>) -> Self {
        Self(rules)
    }
}

#[async_trait]
impl Tool for SearchFiles {
    fn name(&self) -> &str {
        "search_files"
    }

    fn description(&self) -> &str {
        "Finds the lines that match a regular expression in the text files of a directory and those below it, or in one file. \
         `glob` says which names: `*.rs`."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "A regular expression, without look-around." },
                "path": { "type": "string", "description": "Where; the working directory unless given." },
                "glob": { "type": "string", "description": "Which file names." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines at most; 50 unless given." }
            },
            "required": ["pattern"]
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let pattern = call.text("pattern")?;
        let built = RegexBuilder::new(pattern).size_limit(1 << 20).build();
        let regex = built.map_err(|error| ToolError::Failed(format!("`pattern` is no regular expression: {error}")))?;
        let glob = call.optional_text("glob")?.filter(|glob| !glob.is_empty()).map(glob_of).transpose();
        let glob = glob.map_err(|error| ToolError::Failed(format!("`glob` cannot be read: {error}")))?;
        let path = call.optional_text("path")?.filter(|path| !path.is_empty()).unwrap_or(".").to_owned();
        let limit = call.optional_number("limit")?.unwrap_or(RESULTS).clamp(1, MOST_RESULTS);
        let (rules, cwd) = (Arc::clone(&self.0), call.turn.cwd.clone());
        let ended = Arc::new(AtomicBool::new(false));
        let _guard = EndOnDrop(Arc::clone(&ended));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        blocking(move || {
            let root = rules.existing(&cwd, &path)?;
            let search =
                Search { rules: &rules, cwd: &cwd, regex, glob, limit, ended: &ended, until: Instant::now() + TIME };
            Ok(search.run(root))
        })
        .await
    }
}

/// A turn that goes away ends its search.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Search<'a> {
    rules: &'a FileRules,
    cwd: &'a Path,
    regex: Regex,
    glob: Option<Regex>,
    limit: usize,
    ended: &'a AtomicBool,
    until: Instant,
}

impl Search<'_> {
    fn run(&self, root: PathBuf) -> Value {
        let (mut matches, mut files, mut skipped, mut bytes) = (Vec::new(), 0, 0, 0);
        let mut note = None;
        let mut to_do = vec![root];
        while let Some(path) = to_do.pop() {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            if Instant::now() >= self.until || files >= MOST_FILES {
                note = Some("the search took too long and is not complete; search in a smaller directory");
                break;
            }
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                let mut below: Vec<PathBuf> =
                    path.read_dir().into_iter().flatten().flatten().map(|e| e.path()).collect();
                // The last is looked at first.
                below.sort_unstable_by(|a, b| b.cmp(a));
                let is_passed =
                    |path: &PathBuf| path.file_name().is_some_and(|name| PASSED_OVER.iter().any(|one| name == *one));
                to_do.extend(below.into_iter().filter(|path| !is_passed(path)));
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !metadata.is_file() || self.glob.as_ref().is_some_and(|glob| !glob.is_match(&name)) {
                continue;
            }
            files += 1;
            if metadata.len() > LARGEST {
                skipped += 1;
                continue;
            }
            let Some(text) = self.text_of(&path) else { continue };
            for (number, line) in text.lines().enumerate().filter(|(_, line)| self.regex.is_match(line)) {
                if matches.len() >= self.limit || bytes > self.rules.output_bytes {
                    note = Some("there are more matches; raise `limit`, or search for something rarer");
                    break;
                }
                let shown: String = line.trim_end().chars().take(LONGEST_LINE).collect();
                let path = path.strip_prefix(self.cwd).unwrap_or(&path).display().to_string();
                bytes += shown.len() + path.len() + 40;
                matches.push(json!({ "path": path, "line": number + 1, "text": shown }));
            }
            if note.is_some() {
                break;
            }
        }
        let mut result = json!({ "matches": matches });
        if let Some(note) = note {
            result["note"] = note.into();
        }
        if skipped > 0 {
            result["skipped"] = format!("{skipped} files of more than {} MB", LARGEST >> 20).into();
        }
        result
    }

    /// A file that may be read and is text. Links were not followed, so nothing leads out.
    fn text_of(&self, path: &Path) -> Option<String> {
        let (file, _, _) = self.rules.open(self.cwd, path.to_str()?).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        // Masked before it is searched: whether a pattern matches would tell a secret piece by piece.
        Encoding::of(&bytes)?.decode(&bytes).map(|text| redact(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::{call, turn};
    use super::*;

    #[tokio::test]
    async fn lines_are_found_where_they_may_be_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (work, outside) = (base.join("work"), base.join("outside"));
        for path in ["work/sub", "work/.git", "work/home", "outside"] {
            fs::create_dir_all(base.join(path)).unwrap();
        }
        fs::write(work.join("a.rs"), "one needle\nno\nneedle two  \n").unwrap();
        fs::write(work.join("sub/b.txt"), "a needle\n").unwrap();
        fs::write(work.join(".git/c"), "needle\n").unwrap();
        fs::write(work.join("home/.env"), "needle\n").unwrap();
        fs::write(work.join("binary"), b"needle\0\n").unwrap();
        fs::write(outside.join("d"), "needle\n").unwrap();
        std::os::unix::fs::symlink(&outside, work.join("out")).unwrap();
        fs::write(work.join("large"), "needle\n").unwrap();
        fs::File::options().write(true).open(work.join("large")).unwrap().set_len(LARGEST + 1).unwrap();
        let rules = Arc::new(FileRules::new(vec![PathBuf::from(".")], &[], &work.join("home"), 50_000).unwrap());
        let (tool, turn) = (SearchFiles::new(rules), turn(&work));
        let found = call(&tool, &turn, json!({ "pattern": "needle" })).await.unwrap();
        let expected = json!({
            "matches": [
                { "path": "a.rs", "line": 1, "text": "one needle" },
                { "path": "a.rs", "line": 3, "text": "needle two" },
                { "path": "sub/b.txt", "line": 1, "text": "a needle" },
            ],
            "skipped": "1 files of more than 10 MB",
        });
        assert_eq!(found, expected);
        let some = call(&tool, &turn, json!({ "pattern": "^needle", "glob": "*.rs" })).await.unwrap();
        assert_eq!(some["matches"].as_array().unwrap().len(), 1);
        let one = call(&tool, &turn, json!({ "pattern": "needle", "limit": 1, "path": "a.rs" })).await.unwrap();
        assert!(one["note"].as_str().unwrap().contains("more matches"), "{one}");
        for args in [json!({ "pattern": "(" }), json!({ "pattern": "x", "path": "../outside" }), json!({})] {
            assert!(call(&tool, &turn, args.clone()).await.is_err(), "{args}");
        }
    }
}
