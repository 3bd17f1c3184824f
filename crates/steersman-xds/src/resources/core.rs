//! Messages that several types of resources use: `google.protobuf`, `envoy.config.core.v3`, `envoy.type` and `envoy.type.matcher.v3`.

use bytes::Bytes;
use std::net::IpAddr;

/// A message that can be in an [`Any`].
pub trait Typed: prost::Message + Default {
    const TYPE_URL: &'static str;
}

/// An encoded message with its type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct Duration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `google.protobuf.Empty`, and messages whose fields are not used.
#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Address {
    #[prost(oneof = "AddressKind", tags = "1, 2")]
    pub address: Option<AddressKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AddressKind {
    #[prost(message, tag = "1")]
    Socket(SocketAddress),
    #[prost(message, tag = "2")]
    Pipe(Pipe),
}

/// An address over TCP. Fields for UDP and for names are missing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SocketAddress {
    /// An IP address; a name only in clusters of the DNS types.
    #[prost(string, tag = "2")]
    pub address: String,
    /// In a oneof, so it is on the wire even if it is 0.
    #[prost(oneof = "PortSpecifier", tags = "3")]
    pub port: Option<PortSpecifier>,
    /// Whether an IPv6 listener takes connections over IPv4.
    #[prost(bool, tag = "6")]
    pub ipv4_compat: bool,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Oneof)]
pub enum PortSpecifier {
    #[prost(uint32, tag = "3")]
    Value(u32),
}

/// A Unix socket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pipe {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(uint32, tag = "2")]
    pub mode: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Locality {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(string, tag = "2")]
    pub zone: String,
    #[prost(string, tag = "3")]
    pub sub_zone: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CidrRange {
    #[prost(string, tag = "1")]
    pub address_prefix: String,
    #[prost(message, optional, tag = "2")]
    pub prefix_len: Option<u32>,
}

/// Where to get a resource from. Only ADS is here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigSource {
    #[prost(message, optional, tag = "3")]
    pub ads: Option<Empty>,
    /// How long to wait for the first one, 15 s by default; 0 is for ever.
    #[prost(message, optional, tag = "4")]
    pub initial_fetch_timeout: Option<Duration>,
    #[prost(enumeration = "ApiVersion", tag = "6")]
    pub resource_api_version: i32,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum ApiVersion {
    Auto = 0,
    V2 = 1,
    V3 = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A header that is added or set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub append_action: i32,
    /// Without it a header whose value is empty is not added.
    #[prost(bool, tag = "4")]
    pub keep_empty_value: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum HeaderAppendAction {
    AppendIfExistsOrAdd = 0,
    AddIfAbsent = 1,
    OverwriteIfExistsOrAdd = 2,
    OverwriteIfExists = 3,
}

/// Where text comes from. Only text in the message itself is here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DataSource {
    #[prost(oneof = "DataSpecifier", tags = "2, 3")]
    pub specifier: Option<DataSpecifier>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DataSpecifier {
    #[prost(bytes = "bytes", tag = "2")]
    InlineBytes(Bytes),
    #[prost(string, tag = "3")]
    InlineString(String),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeFractionalPercent {
    #[prost(message, optional, tag = "1")]
    pub default_value: Option<FractionalPercent>,
    #[prost(string, tag = "2")]
    pub runtime_key: String,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct FractionalPercent {
    #[prost(uint32, tag = "1")]
    pub numerator: u32,
    #[prost(enumeration = "Denominator", tag = "2")]
    pub denominator: i32,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum Denominator {
    Hundred = 0,
    TenThousand = 1,
    Million = 2,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Percent {
    #[prost(double, tag = "1")]
    pub value: f64,
}

/// A regular expression in the syntax of RE2, which must match the whole text.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegexMatcher {
    #[prost(string, tag = "2")]
    pub regex: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegexMatchAndSubstitute {
    #[prost(message, optional, tag = "1")]
    pub pattern: Option<RegexMatcher>,
    /// Groups are `\1` to `\9`.
    #[prost(string, tag = "2")]
    pub substitution: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StringMatcher {
    #[prost(oneof = "StringPattern", tags = "1, 2, 3, 5, 7")]
    pub pattern: Option<StringPattern>,
    /// Not for regular expressions.
    #[prost(bool, tag = "6")]
    pub ignore_case: bool,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StringPattern {
    #[prost(string, tag = "1")]
    Exact(String),
    #[prost(string, tag = "2")]
    Prefix(String),
    #[prost(string, tag = "3")]
    Suffix(String),
    #[prost(message, tag = "5")]
    SafeRegex(RegexMatcher),
    #[prost(string, tag = "7")]
    Contains(String),
}

/// An extension with its configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TypedExtensionConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub typed_config: Option<Any>,
}

/// TLS or another layer around a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TransportSocket {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub typed_config: Option<Any>,
}

/// Options of HTTP/2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Http2ProtocolOptions {
    #[prost(message, optional, tag = "2")]
    pub max_concurrent_streams: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub initial_stream_window_size: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub initial_connection_window_size: Option<u32>,
    #[prost(message, optional, tag = "15")]
    pub connection_keepalive: Option<KeepaliveSettings>,
}

#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct KeepaliveSettings {
    #[prost(message, optional, tag = "1")]
    pub interval: Option<Duration>,
    #[prost(message, optional, tag = "2")]
    pub timeout: Option<Duration>,
}

/// Options of all versions of HTTP.
#[derive(Clone, Copy, Eq, PartialEq, prost::Message)]
pub struct HttpProtocolOptions {
    #[prost(message, optional, tag = "1")]
    pub idle_timeout: Option<Duration>,
    #[prost(message, optional, tag = "3")]
    pub max_connection_duration: Option<Duration>,
    #[prost(message, optional, tag = "4")]
    pub max_stream_duration: Option<Duration>,
    #[prost(message, optional, tag = "6")]
    pub max_requests_per_connection: Option<u32>,
}

// === impl Any ===

impl Any {
    #[must_use]
    pub fn of<T: Typed>(message: &T) -> Any {
        Any { type_url: T::TYPE_URL.to_owned(), value: message.encode_to_vec().into() }
    }

    /// The message, if it is of this type and can be read.
    #[must_use]
    pub fn read<T: Typed>(&self) -> Option<T> {
        (self.type_url == T::TYPE_URL).then(|| T::decode(self.value.clone()).ok())?
    }
}

// === impl Duration ===

impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Duration {
        Duration {
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanos: duration.subsec_nanos().cast_signed(),
        }
    }
}

// === impl Address ===

impl Address {
    #[must_use]
    pub fn tcp(address: IpAddr, port: u16) -> Address {
        let port = Some(PortSpecifier::Value(port.into()));
        let socket = SocketAddress { address: address.to_string(), port, ipv4_compat: false };
        Address { address: Some(AddressKind::Socket(socket)) }
    }

    #[must_use]
    pub fn unix(path: impl Into<String>) -> Address {
        Address { address: Some(AddressKind::Pipe(Pipe { path: path.into(), mode: 0 })) }
    }
}

// === impl ConfigSource ===

impl ConfigSource {
    /// From the stream over which the asking resource came.
    #[must_use]
    pub fn ads() -> ConfigSource {
        ConfigSource { ads: Some(Empty {}), initial_fetch_timeout: None, resource_api_version: ApiVersion::V3.into() }
    }
}

// === impl HeaderValueOption ===

impl HeaderValueOption {
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        value: impl Into<String>,
        append_action: HeaderAppendAction,
    ) -> HeaderValueOption {
        HeaderValueOption {
            header: Some(HeaderValue { key: key.into(), value: value.into() }),
            append_action: append_action.into(),
            keep_empty_value: true,
        }
    }
}

// === impl StringMatcher ===

impl StringMatcher {
    #[must_use]
    pub fn exact(text: impl Into<String>) -> StringMatcher {
        StringMatcher { pattern: Some(StringPattern::Exact(text.into())), ignore_case: false }
    }

    #[must_use]
    pub fn regex(regex: impl Into<String>) -> StringMatcher {
        let regex = RegexMatcher { regex: regex.into() };
        StringMatcher { pattern: Some(StringPattern::SafeRegex(regex)), ignore_case: false }
    }
}

// === impl DataSource ===

impl DataSource {
    #[must_use]
    pub fn text(text: impl Into<String>) -> DataSource {
        DataSource { specifier: Some(DataSpecifier::InlineString(text.into())) }
    }
}

// === impl RuntimeFractionalPercent ===

impl RuntimeFractionalPercent {
    #[must_use]
    pub fn new(numerator: u32, denominator: Denominator) -> RuntimeFractionalPercent {
        let percent = FractionalPercent { numerator, denominator: denominator.into() };
        RuntimeFractionalPercent { default_value: Some(percent), runtime_key: String::new() }
    }
}
