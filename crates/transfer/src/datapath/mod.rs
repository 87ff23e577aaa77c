//! The bytes of files through a connected socket, by every method and in every mode, without framing or encryption.
//!
//! A `SendPath` or a `ReceivePath` owns one connected socket and what its method needs: a buffer, a window of addresses, a
//! pipe, a ring. It moves ranges of files, and the few bytes of framing between them in the same mode. Both ends may use any
//! method, since the same bytes are on the wire.
//!
//! A method (`methods`) defines how bytes get from the file to the socket, a mode how a call waits for the socket. The setup refuses
//! what makes no sense ([`PathSetup::check`]). What was asked for is not always what is achieved: [`IoCounts`].
//!
//! After an error the connection has lost its place and is of no more use, with one exception. Where `DataPath::transfer`
//! failed because of the file, `DataPath::moved` is how many bytes have left the socket, and the rest can be read and dropped.

mod method;
mod methods;
mod path;
mod range_cursor;
mod socket_io;
#[cfg(test)]
mod tests;

pub(crate) use method::words;
pub use method::{Mode, PathMethod, PathSetup, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};
pub(crate) use path::{DataPath, ReceivePath, SendPath};
pub(crate) use range_cursor::ByteObserver;
pub use socket_io::IoCounts;
