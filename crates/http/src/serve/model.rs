//! The models of serving: who serves connections, and how it waits.

use std::fmt;
use std::str::FromStr;

use crate::serve::keyword::parse_keyword;

/// Who serves connections, and how it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerModel {
    /// A process for each connection.
    Fork,
    /// A thread for each connection.
    Thread,
    /// A fixed number of threads, each of which serves one connection until its end.
    Pool,
    /// A fixed number of threads, each of which serves many connections as they become ready, by poll(2).
    Poll,
    /// The same, by epoll.
    #[default]
    Epoll,
    /// A fixed number of threads, each of which serves many connections by requests to an io_uring.
    Uring,
}

/// All models, in their order, by the words for them.
pub(crate) const MODEL_NAMES: [(&str, ServerModel); 6] = [
    ("fork", ServerModel::Fork),
    ("thread", ServerModel::Thread),
    ("pool", ServerModel::Pool),
    ("poll", ServerModel::Poll),
    ("epoll", ServerModel::Epoll),
    ("uring", ServerModel::Uring),
];

impl FromStr for ServerModel {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        parse_keyword(&MODEL_NAMES, word)
    }
}

impl fmt::Display for ServerModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MODEL_NAMES[*self as usize].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_listed_in_order() {
        for (number, (name, model)) in MODEL_NAMES.into_iter().enumerate() {
            assert_eq!((model as usize, model.to_string().as_str(), name.parse()), (number, name, Ok(model)));
        }
    }
}
