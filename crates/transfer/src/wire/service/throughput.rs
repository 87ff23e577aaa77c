//! Tests of throughput: the agent's end of their streams.

use std::time::{Duration, Instant};

use kelvin_sys::net;

use super::{TestSession, overlapping_test_error, refusal};
use crate::wire::message::{AgentRequest, AgentResponse, TestReport, Transport};
use crate::wire::test_socket::TcpEndInfo;
use crate::wire::throughput::{RunningStreams, StreamGroup, StreamRole, StreamSocket, ThroughputSpec};
use crate::wire::{Error, Result};

/// Time beyond that of the test: to connect, and until what was sent has arrived.
const TIME_TO_CONNECT_AND_END: Duration = Duration::from_secs(120);

impl TestSession<'_> {
    /// Receives and sends until the client ends the test, and reports counts on request.
    pub(super) fn serve_throughput(&mut self, spec: &ThroughputSpec) -> Result<TestReport> {
        spec.check(self.limits)?;
        self.time_limit = Duration::from_secs(spec.seconds.into()) + TIME_TO_CONNECT_AND_END;
        let sockets: Vec<StreamSocket> = match spec.transport {
            Transport::Tcp => self.accept_throughput_streams(spec)?,
            Transport::Udp => {
                let introduced = (0..spec.streams()).map(|_| self.introduced_socket());
                let sockets = introduced.map(|socket| socket.map(|(socket, cookie)| StreamSocket::Udp(socket, cookie)));
                sockets.collect::<Result<_>>()?
            }
        };
        let roles = (0..spec.streams()).map(|number| match number < spec.to_agent {
            true => StreamRole::Receives,
            false => StreamRole::Sends,
        });
        self.start = Instant::now();
        let group = StreamGroup::new(spec, roles.zip(sockets).collect())?;
        // The client learns that all streams are there, and begins: then it sees the time of what is sent to it from its beginning.
        self.send(&AgentResponse::Carried(group.initial_counts()))?;
        let AgentRequest::Count = self.channel.receive(self.limits.idle_timeout)? else {
            return Err(overlapping_test_error());
        };
        let ((arrived, stream), cpu_nanoseconds) = group.run(|running| {
            let counts = running.counts()?;
            self.send(&AgentResponse::Carried(counts))?;
            self.answer_throughput(running)
        })?;
        Ok(TestReport { arrived, stream, cpu_nanoseconds, ..TestReport::default() })
    }

    fn accept_throughput_streams(&mut self, spec: &ThroughputSpec) -> Result<Vec<StreamSocket>> {
        let listener = self.listen()?;
        spec.sockets.apply(&listener).map_err(|error| {
            refusal(format!("the kernel of the agent's host does not grant{}: {error}", spec.sockets))
        })?;
        let streams = self.accept_streams(&listener, spec.streams())?;
        for stream in &streams {
            // The client ends the test once it has all. One that does not read leaves nothing behind.
            net::reset_on_close(stream).map_err(Error::call("set up the test"))?;
        }
        Ok(streams.into_iter().map(StreamSocket::Tcp).collect())
    }

    /// Answers the client's requests until it ends the test: the bytes that have arrived by then, and the kernel's report on the first stream.
    fn answer_throughput(&mut self, running: &mut RunningStreams<'_, '_>) -> Result<(u64, Option<TcpEndInfo>)> {
        loop {
            let request: AgentRequest = self.channel.receive(self.limits.idle_timeout)?;
            self.check_time()?;
            match request {
                AgentRequest::Count => {}
                AgentRequest::StopSending => {
                    running.stop_sending();
                    running.wait_for_end();
                }
                AgentRequest::End => {
                    let received = running.counts()?.streams.into_iter().take(running.received_streams());
                    return Ok((received.map(|stream| stream.bytes).sum(), running.first_connection()));
                }
                _ => return Err(overlapping_test_error()),
            }
            let counts = running.counts()?;
            self.send(&AgentResponse::Carried(counts))?;
        }
    }
}
