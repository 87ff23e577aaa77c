//! Reading and writing until a deadline: a slow sender of single bytes cannot block anybody.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kelvin_sys::stop_signals::stop_signal;

use crate::error::is_timeout;
use crate::wire::{Error, Result};

/// A transport with a time limit for each call.
pub trait TimedStream: Read + Write {
    /// Limits each later call of read or write to this time.
    ///
    /// # Errors
    /// A failed system call.
    fn set_io_timeout(&mut self, time: Duration) -> io::Result<()>;
}

impl TimedStream for TcpStream {
    fn set_io_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// A deadline, and how far away it was when it was set.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    duration: Duration,
}

impl Deadline {
    /// So much from now.
    pub fn within(duration: Duration) -> Self {
        Self { end: Instant::now() + duration, duration }
    }

    /// The time left; an error if there is none.
    ///
    /// # Errors
    /// [`Error::TimedOut`], which names what was waited for.
    pub fn remaining(&self, doing: &'static str) -> Result<Duration> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(self.timed_out(doing)),
            remaining => Ok(remaining),
        }
    }

    fn timed_out(&self, doing: &'static str) -> Error {
        Error::TimedOut { doing, seconds: self.duration.as_secs_f64() }
    }

    /// Fills a buffer from a stream.
    ///
    /// # Errors
    /// [`Error::Closed`] if the stream ends before, [`Error::TimedOut`], or a failed call.
    pub fn read_full(&self, stream: &mut impl TimedStream, buffer: &mut [u8], doing: &'static str) -> Result<()> {
        self.repeat(stream, buffer.len(), doing, |stream, position| stream.read(&mut buffer[position..]))
    }

    /// Writes all of a buffer to a stream.
    ///
    /// # Errors
    /// [`Error::Closed`] if nobody reads it any more, [`Error::TimedOut`], or a failed call.
    pub fn write_full(&self, stream: &mut impl TimedStream, buffer: &[u8], doing: &'static str) -> Result<()> {
        self.repeat(stream, buffer.len(), doing, |stream, position| stream.write(&buffer[position..]))
    }

    /// Makes a call until it has moved this many bytes: again if it was interrupted, unless this process was asked to stop. One whose time
    /// was over is late.
    fn repeat<S: TimedStream>(
        &self,
        stream: &mut S,
        bytes: usize,
        doing: &'static str,
        mut call: impl FnMut(&mut S, usize) -> io::Result<usize>,
    ) -> Result<()> {
        let mut position = 0;
        while position < bytes {
            stream.set_io_timeout(self.remaining(doing)?).map_err(Error::call("set the time to wait"))?;
            match call(stream, position) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => position += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted && stop_signal().is_none() => {}
                Err(error) if is_timeout(&error) => return Err(self.timed_out(doing)),
                Err(error) => return Err(Error::call(doing)(error)),
            }
        }
        Ok(())
    }
}
