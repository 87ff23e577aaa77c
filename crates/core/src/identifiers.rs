//! The texts of a run: names have a grammar, every other text a maximum length. Checked when a run is imported, and published
//! in its JSON Schema.

use std::borrow::Cow;

use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Maximum bytes of a name. The longest of ours has 36.
const MAX_NAME_BYTES: usize = 128;

/// Maximum characters of a text of a run. The longest of ours, a formula, has fewer than 1000; a failing program may print
/// more.
pub const MAX_TEXT_CHARS: usize = 16_384;

/// Characters of a hash that stand for it: 1 in 4 billion hosts is called like another.
const SHORT_HASH_CHARS: usize = 8;

/// The beginning of the hash of a host, machine or run, by which people know it.
pub fn short_hash(hash: &str) -> &str {
    hash.char_indices().nth(SHORT_HASH_CHARS).map_or(hash, |(end, _)| &hash[..end])
}

/// The grammar of a kind of names.
#[derive(Debug)]
pub struct Grammar {
    /// As a regular expression.
    pub pattern: &'static str,
    /// In words.
    pub words: &'static str,
    parse: fn(&str) -> bool,
}

impl Grammar {
    /// Whether a text is such a name.
    pub fn allows(&self, text: &str) -> bool {
        text.len() <= MAX_NAME_BYTES && (self.parse)(text)
    }

    fn schema(&self) -> Schema {
        json_schema!({ "type": "string", "pattern": self.pattern, "maxLength": MAX_NAME_BYTES })
    }
}

/// Ids of metrics, probes, studies and hazards, and names of axes.
pub const ID_GRAMMAR: Grammar = Grammar {
    pattern: r"^[a-z0-9_]+(\.[a-z0-9_]+)*$",
    words: "lowercase words of letters, digits and '_' with dots between them, at most 128 bytes",
    parse: is_id,
};

/// Beginnings of ids, which may end with a dot.
pub const ID_PREFIX_GRAMMAR: Grammar = Grammar {
    pattern: r"^[a-z0-9_]+(\.[a-z0-9_]+)*\.?$",
    words: "the beginning of an id: lowercase words of letters, digits and '_' with dots between them, at most 128 bytes",
    parse: |text| is_id(text.strip_suffix('.').unwrap_or(text)),
};

/// Values of axes, modes, versions, identities of machines.
pub const WORD_GRAMMAR: Grammar = Grammar {
    pattern: r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$",
    words: "a word of letters, digits, '_', '.', '+' and '-' that begins with one of the first three, at most 128 bytes",
    parse: |text| !text.is_empty() && !text.starts_with(['.', '+', '-']) && text.bytes().all(is_word_byte),
};

fn is_id(text: &str) -> bool {
    let is_id_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.split('.').all(|word| !word.is_empty() && word.bytes().all(is_id_byte))
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-')
}

/// Makes a type that stands for a grammar in the schema of a field: `#[schemars(with = "Id")]`.
macro_rules! in_schema {
    ($($name:ident: $grammar:ident),*) => {$(
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $grammar.schema()
            }
            fn inline_schema() -> bool {
                true
            }
        }
    )*};
}

in_schema!(Id: ID_GRAMMAR, Beginning: ID_PREFIX_GRAMMAR, Word: WORD_GRAMMAR);

/// Gives every text of a schema without a grammar its maximum length.
#[derive(Clone, Debug)]
pub struct TextLengthLimit;

impl Transform for TextLengthLimit {
    fn transform(&mut self, schema: &mut Schema) {
        let is_text = schema.get("type").is_some_and(|kind| match kind {
            serde_json::Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            kind => kind == "string",
        });
        if is_text && ["pattern", "enum", "const"].iter().all(|key| schema.get(*key).is_none()) {
            schema.insert("maxLength".into(), MAX_TEXT_CHARS.into());
        }
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_hash_is_its_beginning() {
        assert_eq!(short_hash("0123456789abcdef"), "01234567");
        // A hostile file may have any text there.
        assert_eq!([short_hash("012"), short_hash("ääääääääb")], ["012", "ääääääää"]);
    }

    #[test]
    fn grammars_accept_only_valid_names() {
        for text in ["os.syscall.null", "os", "a_b.c9", "9"] {
            assert!(ID_GRAMMAR.allows(text) && ID_PREFIX_GRAMMAR.allows(text) && WORD_GRAMMAR.allows(text), "{text}");
        }
        for text in ["io_uring-fixed-64", "0.1.0+x-y", "L1", "1a202f637f7-054cf"] {
            assert!(!ID_GRAMMAR.allows(text) && WORD_GRAMMAR.allows(text), "{text}");
        }
        assert!(ID_PREFIX_GRAMMAR.allows("os.") && !ID_GRAMMAR.allows("os.") && !ID_PREFIX_GRAMMAR.allows("a..b"));
        let hostile = [
            "",
            ".",
            ".a",
            "a ",
            "A\u{e9}",
            "a\nb",
            "\"><svg onload=alert(1)>",
            "javascript:x",
            "${x}",
            "=x",
            "-x",
            "+x",
            "a/b",
            "..",
            "\u{202e}",
            "a\0",
            "a:b",
            "a%b",
        ];
        for text in hostile {
            assert!(
                ![ID_GRAMMAR, ID_PREFIX_GRAMMAR, WORD_GRAMMAR].iter().any(|grammar| grammar.allows(text)),
                "{text:?}"
            );
        }
        assert!(ID_GRAMMAR.allows(&"x".repeat(MAX_NAME_BYTES)) && !ID_GRAMMAR.allows(&"x".repeat(MAX_NAME_BYTES + 1)));
    }
}
