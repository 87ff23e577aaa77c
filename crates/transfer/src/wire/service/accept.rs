//! Connections that a client opens and closes one after the other, each answered once.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use kelvin_sys::net;
use kelvin_sys::poll::wait_readable;

use super::{
    SILENCE_BEFORE_CHECK, TestGuard, check_time, cookies_match, has_client_ended, listen_for_test, peer_addr,
    send_ready, timed_out,
};
use crate::wire::address::is_same_host;
use crate::wire::control_channel::ControlChannel;
use crate::wire::deadline::Deadline;
use crate::wire::limits::AgentLimits;
use crate::wire::message::Cookie;
use crate::wire::{Error, Result};

/// Accepts connections and answers each, until the client ends the test; how many there were.
pub fn accept_all(channel: &mut ControlChannel, limits: &AgentLimits, served: &TestGuard) -> Result<u64> {
    let listener = listen_for_test(channel)?;
    listener.set_nonblocking(true).map_err(Error::call("listen for the test"))?;
    let address = listener.local_addr().map_err(Error::call("see the address"))?;
    let cookie = send_ready(channel, address, limits)?;
    let client = peer_addr(channel)?;
    let begun = Instant::now();
    let (mut answered, mut last, mut looked) = (0, begun, begun);
    loop {
        // One that was gone before it was accepted is none.
        if wait_readable(listener.as_fd(), SILENCE_BEFORE_CHECK).map_err(Error::call("wait"))?
            && let Ok((mut stream, from)) = listener.accept()
            && is_same_host(from, client)
        {
            let deadline = Deadline::within(limits.handshake_timeout);
            // One without the cookie is no part of the test, and costs it no more than this time.
            answered += u64::from(return_cookie(&mut stream, &cookie, &deadline).is_ok());
            last = Instant::now();
        }
        // However many others connect.
        if looked.elapsed() >= SILENCE_BEFORE_CHECK {
            if has_client_ended(channel, limits)? {
                return Ok(answered);
            }
            if last.elapsed() > limits.idle_timeout {
                return Err(timed_out(limits));
            }
            served.update_max();
            check_time(begun, limits)?;
            looked = Instant::now();
        }
    }
}

/// Returns the cookie, and resets the connection once the client has closed it, which frees the client's port at once instead
/// of after a minute.
fn return_cookie(stream: &mut TcpStream, cookie: &Cookie, deadline: &Deadline) -> Result<()> {
    const DOING: &str = "begin with the cookie";
    net::reset_on_close(stream).map_err(Error::call("set up the test"))?;
    stream.set_nodelay(true).map_err(Error::call("set up the test"))?;
    let mut said = Cookie::default();
    deadline.read_full(stream, &mut said, DOING)?;
    if !cookies_match(&said, cookie) {
        return Err(Error::Refused("another cookie".into()));
    }
    deadline.write_full(stream, cookie, "read the cookie")?;
    match deadline.read_full(stream, &mut [0], "close the connection") {
        Err(Error::Closed) => Ok(()),
        Ok(()) => Err(Error::Refused("more than the cookie".into())),
        Err(error) => Err(error),
    }
}
