//! How bytes get from a socket into a connection.

use std::os::fd::OwnedFd;

use kelvin_sys::net::rx_timestamp;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, recv};

use crate::serve::connection::Connection;
use crate::serve::worker_context::RECEIVE_CHUNK;

/// Receives what has come, or comes while a socket that waits does: how many bytes, none at the end. Of a connection that is watched
/// it is asked as well when they came, which costs more.
///
/// # Errors
/// Those of the call.
#[inline]
pub fn receive(connection: &mut Connection, socket: &OwnedFd) -> Result<usize> {
    let is_watched = connection.is_tracked();
    let buffer = connection.input_buffer(RECEIVE_CHUNK);
    if is_watched {
        let arrived = rx_timestamp::append(socket, buffer);
        let arrived = arrived.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        connection.mark_received_delayed(arrived.length, arrived.delay());
        return Ok(arrived.length);
    }
    let (_, received) = recv(socket, spare_capacity(buffer), RecvFlags::empty())?;
    connection.mark_received(received);
    Ok(received)
}
