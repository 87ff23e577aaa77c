//! The protocol, byte for byte: who gets in, frames, lengths; and a million invalid inputs.

mod authenticated;
mod handshakes;
mod throughput;

use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kelvin_sys::random::split_mix;
use serde::{Deserialize, Serialize};

use crate::wire::Error;
use crate::wire::admission::AgentLimits;
use crate::wire::cipher::{MAX_CONTENT_BYTES, Opener};
use crate::wire::client::client_handshake;
use crate::wire::control_channel::{ControlChannel, MAX_FRAME_BYTES, receive_frame};
use crate::wire::cpu_usage::{BusiestCpu, CpuUsage};
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::file_server::{
    DiskRateReport, FileCacheState, FileServerInfo, FileServerOptions, MAX_FILE_NAME, is_file_name,
};
use crate::wire::limits_serde::MAX_REASON_BYTES;
use crate::wire::message::{
    AgentRequest, AgentResponse, PROTOCOL, StreamPlacement, TestCounts, TestDirection, TestReport, Transport,
};
use crate::wire::secret::Secret;
use crate::wire::stream_spread::StreamSpread;
use crate::wire::test_socket::{Interface, TcpEndInfo, TestSocketOptions};
use crate::wire::throughput::{DatagramCounts, EndCounts, StreamCounts, TcpSendCounts, ThroughputSpec};
use handshakes::{connected_halves, handshake};

const LONG_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer with prepared bytes, whose listener keeps what it receives.
#[derive(Debug, Default)]
struct ScriptedStream {
    input: Cursor<Vec<u8>>,
    received: Vec<u8>,
}

impl ScriptedStream {
    fn with_input(bytes: Vec<u8>) -> Self {
        Self { input: Cursor::new(bytes), received: Vec::new() }
    }
}

impl Read for ScriptedStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for ScriptedStream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.received.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl TimedStream for ScriptedStream {
    fn set_io_timeout(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

fn secret() -> Secret {
    Secret::new(b"correct horse battery staple\n").unwrap()
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

/// The frames of this stream of bytes.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut stream = ScriptedStream::with_input(bytes.to_vec());
    std::iter::from_fn(|| receive_frame(&mut stream, &Deadline::within(LONG_TIMEOUT), "").ok()).collect()
}

#[test]
fn keys_differ_by_secret_and_purpose() {
    let other_secret = Secret::new(b"correct horse battery stable").unwrap();
    let keys =
        [secret().key_for("one"), secret().key_for("two"), other_secret.key_for("one"), Secret::none().key_for("one")];
    for (number, key) in keys.iter().enumerate() {
        assert!(keys[..number].iter().all(|earlier| earlier != key), "{number}");
    }
    assert_eq!((keys[3], keys[0]), (None, secret().key_for("one")));
    // White space at the end is none of it.
    assert_eq!(keys[0], Secret::new(b"correct horse battery staple").unwrap().key_for("one"));
    assert_eq!(format!("{:?}", secret()), "Secret { is_some: true, .. }");
}

#[test]
fn short_or_readable_secret_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let read = |content: &[u8], mode: u32| {
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Secret::read(&file).map_err(|error| error.to_string())
    };
    assert!(read(b"0123456789abcdef\n", 0o600).unwrap().is_some());
    assert!(read(b"0123456789abcde\n", 0o600).unwrap_err().contains("token: has 15 bytes"));
    assert!(read(b"0123456789abcdef\n", 0o640).unwrap_err().contains("to others (mode 640): chmod 600 it"));
    assert!(read(&[b'a'; 4097], 0o600).unwrap_err().contains("at most 4096"));
    assert!(Secret::read(directory.path()).unwrap_err().to_string().contains("it is a directory, not a regular file"));
    // A named pipe to which nobody writes.
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(Secret::read(&pipe).unwrap_err().to_string().contains("it is a named pipe, not a regular file"));
    assert!(Secret::read(&directory.path().join("none")).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn forged_length_allocates_nothing() {
    for claimed in [MAX_FRAME_BYTES as u32 + 1, u32::MAX] {
        let mut stream = ScriptedStream::with_input(claimed.to_le_bytes().to_vec());
        let error = receive_frame(&mut stream, &Deadline::within(LONG_TIMEOUT), "").unwrap_err();
        assert!(
            matches!(error, Error::FrameTooLong { claimed: frame_bytes, .. } if frame_bytes == claimed as usize),
            "{error}"
        );
    }
    let longest = framed(&vec![7; MAX_FRAME_BYTES]);
    assert_eq!(frames(&longest), [vec![7; MAX_FRAME_BYTES]]);
    // A frame that ends early is the end of its sender.
    let mut stream = ScriptedStream::with_input(longest[..1000].to_vec());
    assert!(matches!(receive_frame(&mut stream, &Deadline::within(LONG_TIMEOUT), ""), Err(Error::Closed)));
}

#[test]
fn timeout_error_names_step() {
    let mut stream = ScriptedStream::with_input(framed(b"late"));
    let error = receive_frame(&mut stream, &Deadline::within(Duration::ZERO), "speak").unwrap_err();
    assert_eq!(error.to_string(), "the other side did not speak within 0 s");
}

/// What a channel sent, frame by frame, and the other end of it.
fn sent_frames(messages: &[AgentRequest]) -> (Vec<Vec<u8>>, Opener) {
    let (client, (_, opener)) = connected_halves();
    let mut channel = ControlChannel::new(ScriptedStream::default(), client);
    messages.iter().for_each(|message| channel.send(message, LONG_TIMEOUT).unwrap());
    (frames(&channel.stream.received), opener)
}

/// A channel by which this opener receives these frames.
fn channel_receiving(frames: &[Vec<u8>], opener: Opener) -> ControlChannel<ScriptedStream> {
    let bytes = frames.iter().flat_map(|frame| framed(frame)).collect();
    ControlChannel::new(ScriptedStream::with_input(bytes), (connected_halves().0.0, opener))
}

#[test]
fn out_of_order_frame_is_rejected() {
    let requests = [AgentRequest::Echo { transport: Transport::Tcp, bytes: 64 }, AgentRequest::End, AgentRequest::End];
    let (frames, opener) = sent_frames(&requests);
    assert!(frames.iter().all(|frame| !frame.windows(3).any(|window| window == b"end" || window == b"tcp")));
    let mut channel = channel_receiving(&frames, opener);
    assert_eq!(requests.each_ref().map(|_| channel.receive::<AgentRequest>(LONG_TIMEOUT).unwrap()), requests);
    // Forged, dropped, repeated, too short for a tag, and as long as a frame can be.
    let changes: [fn(&mut Vec<Vec<u8>>); 5] = [
        |frames| frames[0][5] ^= 1,
        |frames| drop(frames.remove(0)),
        |frames| frames.insert(0, frames[0].clone()),
        |frames| frames[0].truncate(15),
        |frames| frames[0].resize(MAX_FRAME_BYTES, 0),
    ];
    for (number, change) in changes.iter().enumerate() {
        let (mut frames, opener) = sent_frames(&requests);
        change(&mut frames);
        let mut channel = channel_receiving(&frames, opener);
        if number == 2 {
            assert_eq!(channel.receive::<AgentRequest>(LONG_TIMEOUT).unwrap(), requests[0]);
        }
        assert!(matches!(channel.receive::<AgentRequest>(LONG_TIMEOUT), Err(Error::Tampered)), "{number}");
    }
    // What is too long is not sent.
    let mut channel = ControlChannel::new(ScriptedStream::default(), connected_halves().0);
    assert!(matches!(
        channel.send_serialized(&vec![b' '; MAX_CONTENT_BYTES + 1], LONG_TIMEOUT),
        Err(Error::FrameTooLong { .. })
    ));
    assert!(channel.stream.received.is_empty());
    channel.send_serialized(&vec![b' '; MAX_CONTENT_BYTES], LONG_TIMEOUT).unwrap();
}

/// An agent of version 4 and earlier begins with this, and a client of them expects it.
#[derive(Debug, Serialize, Deserialize)]
struct Version4 {
    name: String,
    protocol: u32,
    program: String,
    secret: bool,
    nonce: [u8; 32],
}

#[test]
fn version_mismatch_is_reported_by_both_ends() {
    for version in [4, PROTOCOL.version + 1] {
        let hello = Version4 {
            name: "kelvin agent".into(),
            protocol: version,
            program: "9.9.9".into(),
            secret: true,
            nonce: [3; 32],
        };
        let stream = ScriptedStream::with_input(framed(&serde_json::to_vec(&hello).unwrap()));
        let error_text = client_handshake(stream, &secret(), LONG_TIMEOUT).unwrap_err().to_string();
        let expected =
            format!("version {version} of the protocol (kelvin 9.9.9), this one version {}", PROTOCOL.version);
        assert!(error_text.contains(&expected), "{error_text}");
    }
    let mut stream = ScriptedStream::default();
    handshake(&PROTOCOL, &secret()).send_hello(&mut stream).unwrap();
    let hello: Version4 = serde_json::from_slice(&frames(&stream.received)[0]).unwrap();
    assert_eq!(
        (hello.name.as_str(), hello.protocol, hello.secret),
        ("kelvin agent", PROTOCOL.version, true),
        "{hello:?}"
    );
}

impl ControlChannel<ScriptedStream> {
    /// Has the other side send this next.
    fn feed(&mut self, bytes: Vec<u8>) {
        self.stream.input = Cursor::new(bytes);
    }
}

/// One of each request.
fn all_requests() -> Vec<AgentRequest> {
    let sockets =
        TestSocketOptions { congestion_control: Some("reno".into()), buffers: Some(65_536), segment: Some(1000) };
    let streams = |direction| AgentRequest::Streams {
        direction,
        count: 3,
        placement: StreamPlacement::OwnCpus,
        sockets: sockets.clone(),
    };
    vec![
        AgentRequest::Echo { transport: Transport::Udp, bytes: 64 },
        streams(TestDirection::ToAgent),
        streams(TestDirection::FromAgent),
        AgentRequest::ReceiveDatagrams { bytes: 100 },
        AgentRequest::Throughput(ThroughputSpec {
            transport: Transport::Udp,
            to_agent: 2,
            from_agent: 1,
            message: 1200,
            bits_per_second: Some(10_000_000),
            bytes: Some(1 << 30),
            seconds: 20,
            no_delay: true,
            sockets: sockets.clone(),
        }),
        AgentRequest::StopSending,
        AgentRequest::Accept,
        AgentRequest::ServeFiles(FileServerOptions { model: Some("pool".into()), send: None, threads: Some(2) }),
        AgentRequest::Names { from: 100 },
        AgentRequest::ReadFromDisk,
        AgentRequest::SetCacheState { cache: FileCacheState::Uncached, from: 7 },
        AgentRequest::KeepAlive,
        AgentRequest::Count,
        AgentRequest::End,
    ]
}

/// One of each answer.
fn all_responses() -> Vec<AgentResponse> {
    let interface = Interface {
        name: "eth0".into(),
        driver: Some("veth".into()),
        bits_per_second: Some(1e10),
        largest_packet: Some(1500),
        offloads: Some(vec!["tso".into(), "gro".into()]),
    };
    let stream = TcpEndInfo {
        round_trip: 50_000,
        retransmits: 1,
        congestion_window: 10,
        mss: 1448,
        path_mtu: 1500,
        congestion_control: "reno".into(),
        buffers: [65_536; 2],
    };
    let busy = CpuUsage {
        busiest_thread: 0.5,
        threads: 1.5,
        cpu: Some(BusiestCpu { number: 1, share: 0.7, interrupts: 0.1 }),
    };
    let spread = Some(StreamSpread { slowest: 100, fastest: 400 });
    vec![
        AgentResponse::Ready { port: 9, cookie: [7; 16] },
        AgentResponse::Counted(TestCounts { bytes: 1000, nanoseconds: 2000, busy, spread, ..TestCounts::default() }),
        AgentResponse::Done(TestReport {
            arrived: 3,
            max_concurrent_tests: 1,
            interface: Some(interface),
            stream: Some(stream),
            cpus: 2,
            ..TestReport::default()
        }),
        AgentResponse::Carried(EndCounts {
            nanoseconds: 5000,
            busy,
            streams: vec![
                StreamCounts { bytes: 7, datagrams: Some(DatagramCounts::default()), ..StreamCounts::default() },
                StreamCounts { ended: Some(3), tcp: Some(TcpSendCounts::default()), ..StreamCounts::default() },
            ],
        }),
        AgentResponse::failed("it is impossible"),
        AgentResponse::Serving(FileServerInfo {
            files_port: 1,
            stats_port: 2,
            token: "f00".into(),
            files: 2,
            bytes: 5,
            skipped: 1,
            cacheable_bytes: Some(1 << 30),
        }),
        AgentResponse::Names(vec!["one".into(), "two \"2\"".into()]),
        AgentResponse::Read(DiskRateReport { bytes_per_second: 1e9, read_per_second: Some(2e9), requests: None }),
        AgentResponse::CacheStateSet(2),
        AgentResponse::Alive,
    ]
}

/// Changes some bytes, cuts it, adds to it; sometimes makes a text in it as long as a frame can be.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    let mut next_below = |bound: usize| (split_mix(state) % bound.max(1) as u64) as usize;
    if next_below(500) == 0 {
        let start = next_below(bytes.len());
        let quote = bytes[start..].iter().position(|&byte| byte == b'"');
        let available_bytes = MAX_CONTENT_BYTES - bytes.len().min(1000);
        bytes.splice(
            quote.map_or(0..0, |quote| start + quote + 1..start + quote + 1),
            vec![b'x'; available_bytes - next_below(100)],
        );
    }
    for _ in 0..next_below(6) {
        match (next_below(4), bytes.len()) {
            (0, 1..) => {
                let position = next_below(bytes.len());
                bytes[position] = next_below(256) as u8;
            }
            (1, 1..) => bytes.truncate(next_below(bytes.len())),
            (2, _) => bytes.insert(next_below(bytes.len() + 1), next_below(256) as u8),
            // JSON consists of digits and brackets.
            _ => {
                let position = next_below(bytes.len() + 1);
                bytes.splice(position..position, [b"[{\"-9e,}]"[next_below(9)]].repeat(next_below(40)));
            }
        }
    }
}

/// The reader of a million inputs: a quarter of them each the agent, the client, an open channel, and what a channel passes on
/// of an authenticated client.
#[test]
fn million_invalid_inputs_are_rejected() {
    let secret = secret();
    let recorded = handshakes::RecordedHandshake::new(&secret);
    let request_frames: Vec<Vec<Vec<u8>>> = vec![sent_frames(&all_requests()).0, sent_frames(&all_requests()[3..]).0];
    let sealed: Vec<Vec<u8>> = request_frames.concat().iter().map(|frame| framed(frame)).collect();
    let (frames, opener) = sent_frames(&all_requests());
    let first = framed(&frames[0]);
    let mut channel = channel_receiving(&[], opener);
    let mut messages: Vec<Vec<u8>> =
        all_requests().iter().map(|request| serde_json::to_vec(request).unwrap()).collect();
    let request_count = messages.len();
    messages.extend(all_responses().iter().map(|answer| serde_json::to_vec(answer).unwrap()));
    let strange =
        [vec![recorded.greeting.clone(), recorded.answers.clone(), first.clone(), Vec::new()], sealed].concat();
    let (limits, mut understood) = (AgentLimits::default(), [0; 2]);
    let mut state = 1;
    for number in 0..1_000_000 {
        let pick = |inputs: &[Vec<u8>]| inputs[number / 4 % inputs.len()].clone();
        let mut bytes = if number % 4 == 3 { pick(&messages) } else { pick(&strange) };
        mutate(&mut bytes, &mut state);
        match number % 4 {
            0 => assert_eq!(recorded.replay(&bytes).is_ok(), bytes.starts_with(&recorded.greeting), "{number}"),
            1 => assert!(client_handshake(ScriptedStream::with_input(bytes), &secret, LONG_TIMEOUT).is_err()),
            // Kept for the end.
            2 if bytes.starts_with(&first) => {}
            2 => {
                channel.feed(bytes);
                assert!(channel.receive::<AgentRequest>(LONG_TIMEOUT).is_err(), "{number}");
            }
            _ if number / 4 % messages.len() < request_count => {
                understood[0] += u64::from(is_request_bounded(&bytes, &limits))
            }
            _ => understood[1] += u64::from(is_response_bounded(&bytes)),
        }
    }
    channel.feed(first);
    assert!(channel.receive::<AgentRequest>(LONG_TIMEOUT).is_ok(), "it is still the next one");
    assert!(understood.iter().all(|&count| count > 10_000), "{understood:?}: mutations leave some of it whole");
}

/// Whether it is a valid request, of which nothing is too long; if not, the reason is short.
fn is_request_bounded(text: &[u8], limits: &AgentLimits) -> bool {
    let request = match serde_json::from_slice::<AgentRequest>(text).map_err(Error::malformed) {
        Ok(request) => request,
        Err(why) => return is_short(&why),
    };
    assert!(request.to_string().len() < 200, "{request:?}");
    if let AgentRequest::Throughput(spec) = &request
        && spec.check(limits).is_ok()
    {
        assert!(spec.streams() <= 128 && spec.message <= 1 << 20 && spec.seconds <= 86_400, "{spec:?}");
    }
    if let AgentRequest::Streams { sockets, .. } = request
        && sockets.check(limits).is_ok()
    {
        assert!(sockets.buffers.is_none_or(|bytes| bytes <= limits.max_buffer_bytes), "{sockets:?}");
        assert!(sockets.congestion_control.is_none_or(|name| name.len() <= 15));
    }
    true
}

/// Like `is_request_bounded`, of an answer.
fn is_response_bounded(text: &[u8]) -> bool {
    let content = match serde_json::from_slice::<AgentResponse>(text).map_err(Error::malformed) {
        Ok(AgentResponse::Ready { .. }) => String::new(),
        Ok(AgentResponse::Counted(counts)) => counts.busy.to_string(),
        Ok(AgentResponse::Carried(counts)) => {
            // Sums over all streams do not overflow.
            let bytes = counts.streams.iter().try_fold(0_u64, |sum, stream| sum.checked_add(stream.bytes));
            assert!(bytes.is_some() && counts.streams.len() <= 128, "{counts:?}");
            counts.busy.to_string()
        }
        Ok(AgentResponse::Done(TestReport { interface, stream, .. })) => {
            format!(
                "{}{}",
                interface.map_or_else(String::new, |interface| interface.to_string()),
                stream.map_or_else(String::new, |stream| stream.to_string())
            )
        }
        Ok(AgentResponse::Failed { why }) => why,
        Ok(AgentResponse::Serving(FileServerInfo { token, .. })) => token,
        Ok(AgentResponse::Names(names)) => {
            assert!(names.len() <= 100 && names.iter().all(|name| is_file_name(name)), "{names:?}");
            names.into_iter().find(|name| name.len() > MAX_FILE_NAME).unwrap_or_default()
        }
        Ok(AgentResponse::Read(rate)) => {
            assert!(rate.bytes_per_second >= 0.0, "{rate:?}");
            String::new()
        }
        Ok(AgentResponse::CacheStateSet(_) | AgentResponse::Alive) => String::new(),
        Err(why) => return is_short(&why),
    };
    assert!(content.len() < 1000 + 128 * 65 && !content.contains(char::is_control), "{content}");
    true
}

/// False, once it is known that this can be reported.
fn is_short(why: &Error) -> bool {
    assert!(why.to_string().len() < MAX_REASON_BYTES, "{why}");
    false
}
