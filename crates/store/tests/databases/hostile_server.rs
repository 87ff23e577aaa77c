//! A server that does not keep to the protocol: what it sends without end is refused, in one line and in bounded memory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::stores::location;
use kelvin_store::Store;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The next message of the client; `None` when it has gone.
fn read_message(client: &mut TcpStream) -> Option<u8> {
    let mut head = [0; 5];
    client.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut body = vec![0; length as usize - 4];
    client.read_exact(&mut body).ok()?;
    Some(head[0])
}

/// A server that has no TLS, begins as PostgreSQL does, and then answers the first statement that gives rows by `with`.
fn serve(mut client: TcpStream, greeting: &[u8], answer: &[u8]) -> Option<()> {
    let mut request_head = [0; 8];
    client.read_exact(&mut request_head).ok()?;
    client.write_all(b"N").ok()?;
    client.read_exact(&mut request_head[..4]).ok()?;
    let mut startup_message =
        vec![0; u32::from_be_bytes([request_head[0], request_head[1], request_head[2], request_head[3]]) as usize - 4];
    client.read_exact(&mut startup_message).ok()?;
    client.write_all(greeting).ok()?;
    let ready = message(b'Z', b"I");
    let column =
        |name: &[u8]| [name, b"\0", &[0; 6], &20_u32.to_be_bytes(), &8_u16.to_be_bytes(), &[0xff; 4], &[0; 2]].concat();
    let description = [
        message(b'1', b""),
        message(b't', &[0, 0]),
        message(b'T', &[&[0, 2][..], &column(b"a"), &column(b"b")].concat()),
    ]
    .concat();
    let mut is_described = false;
    loop {
        match read_message(&mut client)? {
            b'Q' => client.write_all(&[message(b'C', b"SET\0"), ready.clone()].concat()).ok()?,
            b'S' if !is_described => {
                client.write_all(&[description.as_slice(), &ready].concat()).ok()?;
                is_described = true;
            }
            b'S' => {
                client.write_all(&message(b'2', b"")).ok()?;
                loop {
                    client.write_all(answer).ok()?;
                }
            }
            _ => {}
        }
    }
}

fn greeting() -> Vec<u8> {
    [message(b'R', &[0; 4]), message(b'S', b"server_version\x0015.0\0"), message(b'K', &[0; 8]), message(b'Z', b"I")]
        .concat()
}

/// Why a store at such a server could not be opened, at this name of the host.
fn refusal(host: &str, greeting: Vec<u8>, answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0, &greeting, &answer));
    let error =
        Store::open(location(&format!("postgres://me:secret@{host}:{port}/db?connect_timeout=20"))).unwrap_err();
    server.join().unwrap();
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("secret") && text.len() < 400, "{text}");
    text
}

/// Bytes of memory that this process has had at most.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn endless_server_messages_are_refused() {
    let number = [&8_u32.to_be_bytes()[..], &1_i64.to_be_bytes()].concat();
    let row = message(b'D', &[&[0, 2][..], &number, &number].concat());
    let peak_before = peak_memory();
    let text = refusal("127.0.0.1", greeting(), row.repeat(1000));
    assert!(text.contains("rows without end"), "{text}");
    let text = refusal("127.0.0.1", greeting(), message(b'N', b"SNOTICE\0C00000\0Mx\0\0").repeat(1000));
    assert!(text.contains("the server sends messages without end"), "{text}");
    let text = refusal("127.0.0.1", greeting(), message(b'S', b"a\0b\0").repeat(1000));
    assert!(text.contains("the server sends messages without end"), "{text}");
    let oversized = [&b"E"[..], &0x7fff_ffff_u32.to_be_bytes(), &[b'x'; 4096]].concat();
    let text = refusal("127.0.0.1", greeting(), oversized.clone());
    assert!(text.contains("a message of 2147483643 bytes"), "{text}");
    let text = refusal("127.0.0.1", oversized, Vec::new());
    assert!(text.contains("a message of 2147483643 bytes"), "{text}");
    let growth = peak_memory() - peak_before;
    assert!(growth < 128 << 20, "{growth} bytes more");
}

#[test]
fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let error =
        Store::open(location(&format!("postgres://me@{address}/db?connect_timeout=1"))).unwrap_err().to_string();
    assert!(error.ends_with("the server does not answer within 1 s"), "{error}");
}
