//! The one JSON object that a program wrote, alone in its file or with text around it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Most places at which an object may begin and not end: text of a user has a few, a hostile file has millions.
const MAX_OBJECT_STARTS: usize = 64;

/// The only object in a text for which `is_signed` holds, whatever stands before and after it.
///
/// # Errors
/// If there is none, or several, in words.
pub(crate) fn only_object(text: &str, is_signed: fn(&str) -> bool) -> Result<&str, String> {
    let mut objects = signed_objects(text, is_signed)?;
    match objects.len() {
        1 => Ok(objects.remove(0)),
        0 => Err("it holds no JSON object that names the program and its version".into()),
        several => Err(format!("it holds {several} results: keep one of them, alone in its file")),
    }
}

/// Whether a text is such an object, and nothing else.
pub(crate) fn is_only_object(text: &str, is_signed: fn(&str) -> bool) -> bool {
    let text = text.trim();
    text.starts_with('{') && is_signed(text)
}

fn signed_objects(text: &str, is_signed: fn(&str) -> bool) -> Result<Vec<&str>, String> {
    let mut objects = Vec::new();
    let mut broken: Option<String> = None;
    let (mut position, mut beginnings) = (0, 0);
    while position < text.len() {
        let rest = &text[position..];
        let line = rest.lines().next().unwrap_or_default();
        let next = position + line.len() + usize::from(rest.len() > line.len());
        let indent = line.len() - line.trim_start().len();
        if !line.trim_start().starts_with('{') || beginnings >= MAX_OBJECT_STARTS {
            position = next.max(position + 1);
            continue;
        }
        let begin = position + indent;
        match serde_json::Deserializer::from_str(&text[begin..]).into_iter::<&RawValue>().next() {
            Some(Ok(object)) => {
                if is_signed(object.get()) {
                    objects.push(object.get());
                }
                position = begin + object.get().len();
            }
            Some(Err(error)) => {
                beginnings += 1;
                let line = text[..begin].lines().count() + error.line();
                broken.get_or_insert_with(|| {
                    format!("its JSON is broken near line {line}: {}", error_without_position(&error))
                });
                position = next.max(position + 1);
            }
            None => position = text.len(),
        }
    }
    match (objects.is_empty(), broken) {
        (true, Some(problem)) => Err(problem),
        _ => Ok(objects),
    }
}

/// What is wrong, without the place, which is counted from where the object begins.
fn error_without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// A text from its first line that begins with these words: what a program wrote behind warnings.
///
/// # Errors
/// If no line does, or several do, in words.
pub(crate) fn from_line<'a>(text: &'a str, begins: &str) -> Result<&'a str, String> {
    let mut places = text
        .match_indices(begins)
        .map(|(start, _)| start)
        .filter(|start| text[..*start].ends_with('\n') || *start == 0);
    let first = places.next().ok_or_else(|| format!("no line begins with {begins:?}"))?;
    match places.count() {
        0 => Ok(&text[first..]),
        others => Err(format!("it holds {} results: keep one of them, alone in its file", others + 1)),
    }
}

/// Whether an object deserializes to something: what programs sign with.
pub(crate) fn deserializes_to<'a, T: Deserialize<'a>>(text: &'a str, is_it: impl Fn(&T) -> bool) -> bool {
    serde_json::from_str::<T>(text).is_ok_and(|value| is_it(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_signed(text: &str) -> bool {
        text.contains("signed")
    }

    #[test]
    fn object_is_found_in_other_text() {
        let object = "{\n \"signed\": {\"a\": [1]}\n}";
        for text in [
            object.to_owned(),
            format!("warning\n{object}\nend {{\n"),
            format!("{{\"another\": 1}}\n  {object}"),
            format!("{{ a job }}\r\n{object}"),
        ] {
            assert_eq!(only_object(&text, is_signed), Ok(object), "{text}");
        }
        assert!(is_only_object(object, is_signed) && !is_only_object("x\n{\"signed\": 1}", is_signed));
    }

    #[test]
    fn missing_repeated_or_broken_object_is_error() {
        let told = |text: &str| only_object(text, is_signed).unwrap_err();
        assert_eq!(told("nothing"), "it holds no JSON object that names the program and its version");
        assert_eq!(told("{\"signed\": 1}\n{\"signed\": 2}"), "it holds 2 results: keep one of them, alone in its file");
        let broken = told("a\n{\"signed\": 1,\nwarning\n}");
        assert!(broken.starts_with("its JSON is broken near line 3: "), "{broken}");
        assert!(told(&"{\"a\":\n".repeat(5_000)).starts_with("its JSON is broken"));
    }

    #[test]
    fn text_begins_at_signature_line() {
        assert_eq!(from_line("WARNING: a\nprogram 1\nx", "program "), Ok("program 1\nx"));
        assert_eq!(from_line("program 1\n", "program "), Ok("program 1\n"));
        assert!(from_line("a program 1\n", "program ").is_err());
        assert!(from_line("program 1\nprogram 2\n", "program ").unwrap_err().contains("2 results"));
    }
}
