//! Labels of a run: tags, which are a name and a value, and a note.

use kelvin_core::{JOB_TAG, Labels, NODE_TAG};

use crate::Store;
use crate::error::{DatabaseError, FindError, LabelError};
use crate::run_key::existing_key;
use crate::sql::{SqlConnection, SqlResult, SqlRow, rows, values};
use crate::tag::Tag;

/// What stands before a tag where a run is named.
pub const TAG_PREFIX: &str = "tag:";

/// Maximum characters of a note: a sentence or two.
pub const MAX_NOTE_CHARS: usize = 1000;

impl Tag {
    /// The tag that a name of runs such as `tag:kernel=6.18` means; `None` for any other name.
    ///
    /// # Errors
    /// If what follows `tag:` is no tag.
    pub fn parse_selector(name: &str) -> Result<Option<Self>, FindError> {
        let tag = name.strip_prefix(TAG_PREFIX).map(str::parse).transpose();
        tag.map_err(|problem| FindError::BadTag(name.to_owned(), problem))
    }
}

/// Of these tags, the last of each name, and this note.
pub fn labels(tags: &[Tag], note: Option<&str>) -> Labels {
    let tags = tags.iter().map(|tag| (tag.name().to_owned(), tag.value().to_owned())).collect();
    Labels { tags, note: note.map(str::to_owned) }
}

/// Whether labels say no more of a run than its launcher does: nobody has marked it.
pub(crate) fn is_unmarked(labels: &Labels) -> bool {
    labels.note.is_none() && labels.tags.keys().all(|name| [JOB_TAG, NODE_TAG].contains(&name.as_str()))
}

/// What becomes of labels that a run has already, where others are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OldLabels {
    /// A tag is replaced by one with its name, a note by another.
    Replaced,
    /// They stay as they are.
    Kept,
}

/// Stores labels of a run.
pub(crate) fn put_labels(
    labels: &Labels,
    engine: &dyn SqlConnection,
    run: i64,
    conflict_policy: OldLabels,
) -> SqlResult<()> {
    let (tag, note) = match conflict_policy {
        OldLabels::Replaced => (
            "ON CONFLICT (run, name) DO UPDATE SET value = excluded.value",
            "ON CONFLICT (run) DO UPDATE SET text = excluded.text",
        ),
        OldLabels::Kept => ("ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING"),
    };
    let mut tags = labels.tags.iter().map(|(name, value)| values![run, name, value].to_vec());
    engine.execute_each(&format!("INSERT INTO tag (run, name, value) VALUES ($1, $2, $3) {tag}"), &mut tags)?;
    let note = format!("INSERT INTO note (run, text) VALUES ($1, $2) {note}");
    labels.note.iter().try_for_each(|text| engine.execute(&note, values![run, text]).map(drop))
}

/// The labels of a run.
pub(crate) fn labels_of(store: &Store, run: i64) -> Result<Labels, DatabaseError> {
    let pair = |row: &SqlRow| Ok((row.get(0)?, row.get(1)?));
    let tags = store.rows("SELECT name, value FROM tag WHERE run = $1", values![run], pair)?;
    let note = store.rows("SELECT text FROM note WHERE run = $1", values![run], |row| row.get(0))?.pop();
    Ok(Labels { tags: tags.into_iter().collect(), note })
}

/// A note as it is stored.
///
/// # Errors
/// If it is too long, in words.
pub fn checked_note(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0..=MAX_NOTE_CHARS => Ok(text.to_owned()),
        length => Err(format!("a note may have {MAX_NOTE_CHARS} characters, and this one has {length}")),
    }
}

impl Store {
    /// Gives the run that a name means tags, and takes those with these names from it, all or nothing; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, a tag to be removed is not there, or the store fails.
    pub fn update_tags(&self, name: &str, tags: &[Tag], removed: &[String]) -> Result<String, LabelError> {
        let id = self.find(name)?;
        let missing_tag = self.in_label_transaction(&id, |engine, run| {
            let names: Vec<String> =
                rows(engine, "SELECT name FROM tag WHERE run = $1", values![run], |row| row.get(0))?;
            if let Some(absent_tag) = removed.iter().find(|name| !names.contains(name)) {
                return Ok(Some(absent_tag.clone()));
            }
            let mut parameters = removed.iter().map(|name| values![run, name].to_vec());
            engine.execute_each("DELETE FROM tag WHERE run = $1 AND name = $2", &mut parameters)?;
            put_labels(&labels(tags, None), engine, run, OldLabels::Replaced).map(|()| None)
        })?;
        missing_tag.map_or(Ok(id.clone()), |name| Err(LabelError::NoSuchTag(id, name)))
    }

    /// Gives the run that a name means a note in place of the one that it has, or, if it is empty, takes that away; returns its id.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the store fails.
    pub fn set_note(&self, name: &str, text: &str) -> Result<String, LabelError> {
        let id = self.find(name)?;
        self.in_label_transaction(&id, |engine, run| match text {
            "" => engine.execute("DELETE FROM note WHERE run = $1", values![run]).map(drop),
            text => put_labels(&labels(&[], Some(text)), engine, run, OldLabels::Replaced),
        })?;
        Ok(id)
    }

    /// One transaction on the labels of the run with this id.
    fn in_label_transaction<T>(
        &self,
        id: &str,
        work: impl FnOnce(&dyn SqlConnection, i64) -> SqlResult<T>,
    ) -> Result<T, FindError> {
        self.in_transaction(|engine| work(engine, existing_key(engine, id)?)).map_err(|error| match error {
            DatabaseError::Orphan(_) => FindError::None(id.to_owned()),
            error => error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_of_tag_has_prefix() {
        assert_eq!(Tag::parse_selector("tag:a=b").unwrap().unwrap().to_string(), "a=b");
        assert!(Tag::parse_selector("last").unwrap().is_none() && Tag::parse_selector("tag:last").is_err());
    }

    #[test]
    fn overlong_note_is_rejected() {
        let longest = "ü".repeat(MAX_NOTE_CHARS);
        assert_eq!(checked_note(&longest), Ok(longest.clone()));
        assert!(checked_note(&format!("{longest}.")).unwrap_err().contains("1000 characters"));
    }
}
