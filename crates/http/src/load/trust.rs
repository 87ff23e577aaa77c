//! Which certificates of servers are believed, as a user asked for it.

use std::path::Path;

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust<'f> {
    /// Those of the authorities that the system believes.
    #[default]
    System,
    /// Those of the authorities in this file (PEM), and each certificate in it when a server shows that very one.
    File(&'f Path),
    /// All, of any name and time: anybody on the path can be the server.
    Anybody,
}
