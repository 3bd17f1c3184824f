//! The functions and their types: the table with which the checker resolves calls.
//!
//! A line is `name id (argument, ..) result`, or for a method `name id target.(argument, ..) result`. Single capital
//! letters are type parameters. Names and ids are upstream's, because messages show the names and costs depend on the
//! ids.

use crate::checking::types::{OPTIONAL, Type};
use std::collections::HashMap;
use std::sync::LazyLock;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether the first argument precedes the name.
    pub(crate) member: bool,
    pub(crate) args: Box<[Type]>,
    pub(crate) result: Type,
    /// The number of type parameters.
    pub(crate) parameters: u32,
}

/// A function with its overloads.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

/// The function with this name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

/// Whether an overload compares the order of two strings or byte sequences, which reads up to the length of the shorter
/// one.
pub(crate) fn is_order_of_texts(overload: &str) -> bool {
    matches!(
        overload,
        "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
    )
}

/// The type that a name means in an expression, such as `int` in `type(x) == int`.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "dyn" => Type::Dyn,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "string" => Type::String,
        "type" => Type::Type(std::sync::Arc::new(Type::Dyn)),
        "uint" => Type::Uint,
        CIDR => Type::opaque(CIDR),
        IP => Type::opaque(IP),
        _ => return None,
    })
}

pub(crate) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub(crate) const CIDR: &str = "net.CIDR";
pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";
pub(crate) const FORMAT: &str = "kubernetes.NamedFormat";
pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub(crate) const IP: &str = "net.IP";
pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub(crate) const QUANTITY: &str = "kubernetes.Quantity";
pub(crate) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub(crate) const SEMVER: &str = "kubernetes.Semver";
pub(crate) const URL: &str = "kubernetes.URL";

const OPAQUE: [&str; 11] =
    [AUTHORIZER, CIDR, DECISION, FORMAT, GROUP_CHECK, IP, PATH_CHECK, QUANTITY, RESOURCE_CHECK, SEMVER, URL];

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    let generated = generated();
    let lines = TABLE.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines.chain(generated.iter().map(|line| &**line)) {
        let overload = read(line).expect("invariant: each line of the table is well formed, which a test reads it for");
        let name = &line[..line.find(' ').unwrap_or(line.len())];
        let name: &'static str =
            TABLE.find(name).map_or_else(|| generated_name(name), |at| &TABLE[at..at + name.len()]);
        functions.entry(name).or_insert_with(|| Function { name, overloads: Vec::new() }).overloads.push(overload);
    }
    functions
});

/// Families of overloads that differ only in a type.
const ORDER: [&str; 4] = ["_<_ less", "_<=_ less_equals", "_>_ greater", "_>=_ greater_equals"];
const ORDERED: [(&str, &str); 8] = [
    ("bool", "bool"),
    ("int", "int64"),
    ("uint", "uint64"),
    ("double", "double"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("timestamp", "timestamp"),
    ("duration", "duration"),
];
const TIME_PARTS: [(&str, &str); 10] = [
    ("getFullYear", "year"),
    ("getMonth", "month"),
    ("getDayOfYear", "day_of_year"),
    ("getDayOfMonth", "day_of_month"),
    ("getDate", "day_of_month_1_based"),
    ("getDayOfWeek", "day_of_week"),
    ("getHours", "hours"),
    ("getMinutes", "minutes"),
    ("getSeconds", "seconds"),
    ("getMilliseconds", "milliseconds"),
];
const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

fn generated() -> Vec<Box<str>> {
    let mut lines: Vec<Box<str>> = Vec::new();
    let mut add = |line: String| lines.push(line.into());
    for order in ORDER {
        for (name, id) in ORDERED {
            add(format!("{order}_{id} ({name}, {name}) bool"));
        }
        let numbers = &ORDERED[1..4];
        for (left, left_id) in numbers {
            for (right, right_id) in numbers.iter().filter(|(right, _)| right != left) {
                add(format!("{order}_{left_id}_{right_id} ({left}, {right}) bool"));
            }
        }
    }
    for (name, id) in TIME_PARTS {
        add(format!("{name} timestamp_to_{id} timestamp.() int"));
        add(format!("{name} timestamp_to_{id}_with_tz timestamp.(string) int"));
        if matches!(id, "hours" | "minutes" | "seconds" | "milliseconds") {
            add(format!("{name} duration_to_{id} duration.() int"));
        }
    }
    for (name, id) in [
        ("int", "int"),
        ("uint", "uint"),
        ("double", "double"),
        ("bool", "bool"),
        ("google.protobuf.Duration", "duration"),
        ("google.protobuf.Timestamp", "timestamp"),
        ("string", "string"),
        ("bytes", "bytes"),
    ] {
        add(format!("sort list_{name}_sort list({id}).() list({id})"));
        add(format!("@sortByAssociatedKeys list_{name}_sortByAssociatedKeys list(T).(list({id})) list(T)"));
    }
    for (name, id) in [("int", "int"), ("uint", "uint"), ("double", "double"), ("duration", "duration")] {
        add(format!("sum list_{name}_sum_{name} list({id}).() {id}"));
    }
    for (name, _) in ORDERED {
        add(format!("isSorted list_{name}_is_sorted_bool list({name}).() bool"));
        add(format!("min list_{name}_min_{name} list({name}).() {name}"));
        add(format!("max list_{name}_max_{name} list({name}).() {name}"));
    }
    for name in FORMATS {
        add(format!("format.{name} format-{name} () {FORMAT}"));
    }
    lines
}

/// Generated names and ids live as long as the process; they are generated once.
fn generated_name(name: &str) -> &'static str {
    String::leak(name.to_owned())
}

fn read(line: &str) -> Option<Overload> {
    let (_, rest) = line.split_once(' ')?;
    let (id, rest) = rest.split_once(' ')?;
    let id: &'static str = match TABLE.find(id) {
        Some(at) => &TABLE[at..at + id.len()],
        None => generated_name(id),
    };
    let mut parameters = Vec::new();
    let mut reader = Reader { rest, parameters: &mut parameters };
    let target = if reader.rest.starts_with('(') { None } else { Some(reader.type_of()?) };
    let member = target.is_some();
    let mut args: Vec<Type> = target.into_iter().collect();
    if member {
        reader.take(".")?;
    }
    reader.take("(")?;
    while reader.take(")").is_none() {
        args.push(reader.type_of()?);
        let _ = reader.take(",");
    }
    let result = reader.type_of()?;
    let is_whole = reader.rest.trim().is_empty();
    let parameters = u32::try_from(parameters.len()).ok()?;
    is_whole.then(|| Overload { id, member, args: args.into(), result, parameters })
}

struct Reader<'t, 'p> {
    rest: &'t str,
    parameters: &'p mut Vec<char>,
}

impl Reader<'_, '_> {
    fn take(&mut self, symbol: &str) -> Option<()> {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(symbol)?;
        Some(())
    }

    fn type_of(&mut self) -> Option<Type> {
        self.rest = self.rest.trim_start();
        let is_end = |char: char| matches!(char, '(' | ')' | ',' | ' ');
        // A target's name ends before the dot and the bracket.
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let name = self.rest[..end].trim_end_matches('.');
        self.rest = &self.rest[name.len()..];
        let argument = |reader: &mut Self| {
            reader.take("(")?;
            let inner = reader.type_of()?;
            Some(inner)
        };
        Some(match name {
            "list" => {
                let item = argument(self)?;
                self.take(")")?;
                Type::list(item)
            }
            "optional" => {
                let value = argument(self)?;
                self.take(")")?;
                Type::Opaque(OPTIONAL, std::sync::Arc::new([value]))
            }
            "type" => {
                let of = argument(self)?;
                self.take(")")?;
                Type::Type(std::sync::Arc::new(of))
            }
            "map" => {
                let key = argument(self)?;
                self.take(",")?;
                let value = self.type_of()?;
                self.take(")")?;
                Type::map(key, value)
            }
            "timestamp" => Type::Timestamp,
            "duration" => Type::Duration,
            "null" => Type::Null,
            _ if name.len() == 1 => {
                let letter = name.chars().next()?;
                let at = self.parameters.iter().position(|known| *known == letter).unwrap_or_else(|| {
                    self.parameters.push(letter);
                    self.parameters.len() - 1
                });
                Type::Param(u32::try_from(at).ok()?)
            }
            _ => match OPAQUE.iter().find(|opaque| **opaque == name) {
                Some(opaque) => Type::opaque(opaque),
                None => type_named(name)?,
            },
        })
    }
}

const TABLE: &str = "
!_ logical_not (bool) bool
-_ negate_int64 (int) int
-_ negate_double (double) double
_&&_ logical_and (bool, bool) bool
_||_ logical_or (bool, bool) bool
_?_:_ conditional (bool, T, T) T
_==_ equals (T, T) bool
_!=_ not_equals (T, T) bool
_+_ add_bytes (bytes, bytes) bytes
_+_ add_double (double, double) double
_+_ add_duration_duration (duration, duration) duration
_+_ add_duration_timestamp (duration, timestamp) timestamp
_+_ add_timestamp_duration (timestamp, duration) timestamp
_+_ add_int64 (int, int) int
_+_ add_list (list(T), list(T)) list(T)
_+_ add_string (string, string) string
_+_ add_uint64 (uint, uint) uint
_-_ subtract_double (double, double) double
_-_ subtract_duration_duration (duration, duration) duration
_-_ subtract_int64 (int, int) int
_-_ subtract_timestamp_duration (timestamp, duration) timestamp
_-_ subtract_timestamp_timestamp (timestamp, timestamp) duration
_-_ subtract_uint64 (uint, uint) uint
_*_ multiply_double (double, double) double
_*_ multiply_int64 (int, int) int
_*_ multiply_uint64 (uint, uint) uint
_/_ divide_double (double, double) double
_/_ divide_int64 (int, int) int
_/_ divide_uint64 (uint, uint) uint
_%_ modulo_int64 (int, int) int
_%_ modulo_uint64 (uint, uint) uint
@in in_list (T, list(T)) bool
@in in_map (K, map(K, V)) bool
_[_] index_list (list(T), int) T
_[_] index_map (map(K, V), K) V
_[_] optional_list_index_value (optional(list(V)), int) optional(V)
_[_] optional_map_index_value (optional(map(K, V)), K) optional(V)
_[?_] list_optindex_optional_int (list(V), int) optional(V)
_[?_] optional_list_optindex_optional_int (optional(list(V)), int) optional(V)
_[?_] map_optindex_optional_value (map(K, V), K) optional(V)
_[?_] optional_map_optindex_optional_value (optional(map(K, V)), K) optional(V)
size size_bytes (bytes) int
size bytes_size bytes.() int
size size_list (list(T)) int
size list_size list(T).() int
size size_map (map(K, V)) int
size map_size map(K, V).() int
size size_string (string) int
size string_size string.() int
type type (T) type(T)
dyn to_dyn (T) dyn
bool bool_to_bool (bool) bool
bool string_to_bool (string) bool
bytes bytes_to_bytes (bytes) bytes
bytes string_to_bytes (string) bytes
double double_to_double (double) double
double int64_to_double (int) double
double string_to_double (string) double
double uint64_to_double (uint) double
duration duration_to_duration (duration) duration
duration int64_to_duration (int) duration
duration string_to_duration (string) duration
int int64_to_int64 (int) int
int double_to_int64 (double) int
int duration_to_int64 (duration) int
int string_to_int64 (string) int
int timestamp_to_int64 (timestamp) int
int uint64_to_int64 (uint) int
string string_to_string (string) string
string bool_to_string (bool) string
string bytes_to_string (bytes) string
string double_to_string (double) string
string duration_to_string (duration) string
string int64_to_string (int) string
string timestamp_to_string (timestamp) string
string uint64_to_string (uint) string
string ip_to_string (net.IP) string
string cidr_to_string (net.CIDR) string
timestamp timestamp_to_timestamp (timestamp) timestamp
timestamp int64_to_timestamp (int) timestamp
timestamp string_to_timestamp (string) timestamp
uint uint64_to_uint64 (uint) uint
uint double_to_uint64 (double) uint
uint int64_to_uint64 (int) uint
uint string_to_uint64 (string) uint
contains contains_string string.(string) bool
endsWith ends_with_string string.(string) bool
matches matches (string, string) bool
matches matches_string string.(string) bool
startsWith starts_with_string string.(string) bool
optional.of optional_of (V) optional(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) optional(V)
optional.none optional_none () optional(V)
optional.unwrap optional_unwrap (list(optional(V))) list(V)
unwrapOpt optional_unwrapOpt list(optional(V)).() list(V)
value optional_value optional(V).() V
hasValue optional_hasValue optional(V).() bool
or optional_or_optional optional(V).(optional(V)) optional(V)
orValue optional_orValue_value optional(V).(V) V
first list_first list(V).() optional(V)
last list_last list(V).() optional(V)
charAt string_char_at_int string.(int) string
indexOf string_index_of_string string.(string) int
indexOf string_index_of_string_int string.(string, int) int
indexOf list_a_index_of_int list(T).(T) int
lastIndexOf string_last_index_of_string string.(string) int
lastIndexOf string_last_index_of_string_int string.(string, int) int
lastIndexOf list_a_last_index_of_int list(T).(T) int
lowerAscii string_lower_ascii string.() string
upperAscii string_upper_ascii string.() string
replace string_replace_string_string string.(string, string) string
replace string_replace_string_string_int string.(string, string, int) string
split string_split_string string.(string) list(string)
split string_split_string_int string.(string, int) list(string)
substring string_substring_int string.(int) string
substring string_substring_int_int string.(int, int) string
trim string_trim string.() string
join list_join list(string).() string
join list_join_string list(string).(string) string
format string_format string.(list(dyn)) string
strings.quote strings_quote (string) string
find string_find_string string.(string) string
findAll string_find_all_string string.(string) list(string)
findAll string_find_all_string_int string.(string, int) list(string)
slice list_slice list(T).(int, int) list(T)
flatten list_flatten list(list(T)).() list(T)
flatten list_flatten_int list(dyn).(int) list(dyn)
lists.range lists_range (int) list(int)
reverse list_reverse list(T).() list(T)
distinct list_distinct list(T).() list(T)
sets.contains list_sets_contains_list (list(T), list(T)) bool
sets.equivalent list_sets_equivalent_list (list(T), list(T)) bool
sets.intersects list_sets_intersects_list (list(T), list(T)) bool
url string_to_url (string) kubernetes.URL
isURL is_url_string (string) bool
getScheme url_get_scheme kubernetes.URL.() string
getHost url_get_host kubernetes.URL.() string
getHostname url_get_hostname kubernetes.URL.() string
getPort url_get_port kubernetes.URL.() string
getEscapedPath url_get_escaped_path kubernetes.URL.() string
getQuery url_get_query kubernetes.URL.() map(string, list(string))
ip string_to_ip (string) net.IP
ip cidr_ip net.CIDR.() net.IP
isIP is_ip (string) bool
ip.isCanonical ip_is_canonical (string) bool
family ip_family net.IP.() int
isUnspecified ip_is_unspecified net.IP.() bool
isLoopback ip_is_loopback net.IP.() bool
isLinkLocalMulticast ip_is_link_local_multicast net.IP.() bool
isLinkLocalUnicast ip_is_link_local_unicast net.IP.() bool
isGlobalUnicast ip_is_global_unicast net.IP.() bool
cidr string_to_cidr (string) net.CIDR
isCIDR is_cidr (string) bool
containsIP cidr_contains_ip_string net.CIDR.(string) bool
containsIP cidr_contains_ip_ip net.CIDR.(net.IP) bool
containsCIDR cidr_contains_cidr_string net.CIDR.(string) bool
containsCIDR cidr_contains_cidr net.CIDR.(net.CIDR) bool
masked cidr_masked net.CIDR.() net.CIDR
prefixLength cidr_prefix_length net.CIDR.() int
quantity string_to_quantity (string) kubernetes.Quantity
isQuantity is_quantity_string (string) bool
sign quantity_sign (kubernetes.Quantity) int
isInteger quantity_is_integer kubernetes.Quantity.() bool
asInteger quantity_as_integer kubernetes.Quantity.() int
asApproximateFloat quantity_get_float kubernetes.Quantity.() double
isGreaterThan quantity_is_greater_than kubernetes.Quantity.(kubernetes.Quantity) bool
isLessThan quantity_is_less_than kubernetes.Quantity.(kubernetes.Quantity) bool
compareTo quantity_compare_to kubernetes.Quantity.(kubernetes.Quantity) int
add quantity_add kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity
add quantity_add_int kubernetes.Quantity.(int) kubernetes.Quantity
sub quantity_sub kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity
sub quantity_sub_int kubernetes.Quantity.(int) kubernetes.Quantity
semver string_to_semver (string) kubernetes.Semver
semver string_bool_to_semver (string, bool) kubernetes.Semver
isSemver is_semver_string (string) bool
isSemver is_semver_string_bool (string, bool) bool
isGreaterThan semver_is_greater_than kubernetes.Semver.(kubernetes.Semver) bool
isLessThan semver_is_less_than kubernetes.Semver.(kubernetes.Semver) bool
compareTo semver_compare_to kubernetes.Semver.(kubernetes.Semver) int
major semver_major kubernetes.Semver.() int
minor semver_minor kubernetes.Semver.() int
patch semver_patch kubernetes.Semver.() int
format.named format-named (string) optional(kubernetes.NamedFormat)
validate format-validate kubernetes.NamedFormat.(string) optional(list(string))
path authorizer_path kubernetes.authorization.Authorizer.(string) kubernetes.authorization.PathCheck
check pathcheck_check kubernetes.authorization.PathCheck.(string) kubernetes.authorization.Decision
group authorizer_group kubernetes.authorization.Authorizer.(string) kubernetes.authorization.GroupCheck
serviceAccount authorizer_serviceaccount kubernetes.authorization.Authorizer.(string, string) kubernetes.authorization.Authorizer
resource groupcheck_resource kubernetes.authorization.GroupCheck.(string) kubernetes.authorization.ResourceCheck
subresource resourcecheck_subresource kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
namespace resourcecheck_namespace kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
name resourcecheck_name kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
fieldSelector authorizer_fieldselector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
labelSelector authorizer_labelselector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
check resourcecheck_check kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.Decision
allowed decision_allowed kubernetes.authorization.Decision.() bool
reason decision_reason kubernetes.authorization.Decision.() string
errored decision_errored kubernetes.authorization.Decision.() bool
error decision_error kubernetes.authorization.Decision.() string
jsonpatch.escapeKey string_jsonpatch_escapeKey_string (string) string
";

#[cfg(test)]
mod tests {
    use super::{TABLE, find, generated, read};

    #[test]
    fn every_line_of_the_table_is_read() {
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(read(line).is_some(), "{line}");
        }
        for line in generated() {
            assert!(read(&line).is_some(), "{line}");
        }
    }

    #[test]
    fn overloads_have_the_types_that_their_line_says() {
        let index = find("_[_]").expect("it is in the table");
        let map = &index.overloads[1];
        assert_eq!((map.id, map.parameters, map.member), ("index_map", 2, false));
        assert_eq!(format!("{} {}", map.args[0], map.result), "map(_var0, _var1) _var1");
        let contains = find("containsIP").expect("it is in the table");
        assert_eq!(format!("{}", contains.overloads[1].args[1]), "net.IP");
        assert!(contains.overloads[0].member);
    }
}
