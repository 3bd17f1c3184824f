//! The two text formats of scrapers: OpenMetrics, and the older format of Prometheus.
//!
//! The registry writes OpenMetrics, in which a counter's family has no `_total`. In the older format, families and
//! samples have the same name, and units, exemplars and the end mark do not exist. In both, the bounds of buckets are
//! written as Prometheus' Go client writes them, because they are label values: queries that add up controllers of
//! several languages compare them as text.

use std::borrow::Cow;

/// A text format for metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

// === impl MetricsFormat ===

impl MetricsFormat {
    /// The format for a client with this `Accept` header; [`MetricsFormat::Prometheus`] where the header is empty, or
    /// names only other formats.
    pub fn of_accept(accept: &str) -> Self {
        let mut best = (0.0, Self::Prometheus);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut version) = (1.0, None);
            for parameter in parts {
                match parameter.split_once('=') {
                    Some(("q", value)) => weight = value.trim().parse::<f64>().unwrap_or(0.0),
                    Some(("version", value)) => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            let format = match (&*media, version) {
                ("application/openmetrics-text", None | Some("0.0.1" | "1.0.0")) => Self::OpenMetrics,
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Self::Prometheus,
                _ => continue,
            };
            if weight > best.0 {
                best = (weight, format);
            }
        }
        best.1
    }

    /// The `Content-Type` of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The text `open_metrics` in this format.
    pub(crate) fn render(self, open_metrics: &str) -> String {
        let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 8);
        // The help comes before the type, which decides the name.
        let mut help = None;
        for line in open_metrics.lines() {
            let Some(comment) = line.strip_prefix("# ") else {
                push_line(&mut text, &self.sample(line));
                continue;
            };
            match (self, comment.split_once(' ')) {
                (Self::OpenMetrics, _) => push_line(&mut text, line),
                (Self::Prometheus, Some(("HELP", rest))) => help = rest.split_once(' ').map(|(_, help)| help),
                (Self::Prometheus, Some(("TYPE", rest))) => {
                    let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                    let (suffix, kind) = match kind {
                        "counter" => ("_total", kind),
                        "info" => ("_info", "gauge"),
                        "unknown" => ("", "untyped"),
                        _ => ("", kind),
                    };
                    if let Some(help) = help.take() {
                        push_line(&mut text, &format!("# HELP {name}{suffix} {help}"));
                    }
                    push_line(&mut text, &format!("# TYPE {name}{suffix} {kind}"));
                }
                (Self::Prometheus, _) => {}
            }
        }
        text
    }

    fn sample(self, line: &str) -> Cow<'_, str> {
        let labels_end = end_of_labels(line);
        let line = match (self, line[labels_end..].find(" # ")) {
            (Self::Prometheus, Some(exemplar)) => &line[..labels_end + exemplar],
            _ => line,
        };
        let Some(at) = line[..labels_end].find("_bucket{").and_then(|_| bound_of(&line[..labels_end])) else {
            return Cow::Borrowed(line);
        };
        let Ok(bound) = line[at.clone()].parse::<f64>() else { return Cow::Borrowed(line) };
        Cow::Owned(format!("{}{}{}", &line[..at.start], self.bound(bound), &line[at.end..]))
    }

    /// A bound as Go writes it: the shortest digits, and an exponent below 1e-4 and from 1e6 on. OpenMetrics requires a
    /// point or an exponent.
    fn bound(self, bound: f64) -> String {
        if bound.is_infinite() {
            return "+Inf".to_owned();
        }
        let scientific = format!("{bound:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..GO_EXPONENT).contains(&exponent) {
            let plain = bound.to_string();
            return if self == Self::OpenMetrics && !plain.contains('.') { plain + ".0" } else { plain };
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

/// From this power of ten on, Go's shortest form of a number has an exponent.
const GO_EXPONENT: i32 = 6;

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// The end of a sample's labels, or of its name if it has none.
fn end_of_labels(line: &str) -> usize {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => return at + 1,
            b' ' if !is_quoted => return at,
            _ => {}
        }
    }
    line.len()
}

/// The range of the value of the label `le`.
fn bound_of(labels: &str) -> Option<std::ops::Range<usize>> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in labels.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'{' | b',' if !is_quoted && labels[at + 1..].starts_with("le=\"") => {
                let start = at + "{le=\"".len();
                return Some(start..start + labels[start..].find('"')?);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_accept(accept: &str, expected: MetricsFormat) {
        assert_eq!(MetricsFormat::of_accept(accept), expected, "{accept}");
    }

    #[test]
    fn the_scraper_gets_the_format_that_it_likes_best() {
        check_accept("", MetricsFormat::Prometheus);
        check_accept("*/*", MetricsFormat::Prometheus);
        check_accept("text/html", MetricsFormat::Prometheus);
        check_accept("application/openmetrics-text", MetricsFormat::OpenMetrics);
        check_accept("application/openmetrics-text; version=2.0.0", MetricsFormat::Prometheus);
        check_accept("text/plain;q=0.9, application/openmetrics-text;q=0.1", MetricsFormat::Prometheus);
        // The headers of Prometheus 2 and Prometheus 3.
        check_accept(
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            MetricsFormat::OpenMetrics,
        );
        check_accept(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            MetricsFormat::OpenMetrics,
        );
    }

    #[test]
    fn bounds_are_written_as_go_writes_them() {
        let bounds = [1e-8, 1e-5, 1e-4, 0.25, 64.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0, f64::INFINITY];
        let written = bounds.map(|bound| MetricsFormat::Prometheus.bound(bound));
        let expected =
            ["1e-08", "1e-05", "0.0001", "0.25", "64", "65536", "262144", "1.048576e+06", "1.6777216e+07", "+Inf"];
        assert_eq!(written, expected);
        assert_eq!(MetricsFormat::OpenMetrics.bound(64.0), "64.0");
    }

    #[test]
    fn the_old_format_has_no_units_exemplars_or_end_and_repeats_total() {
        let open_metrics = "# HELP runs How often.\n# TYPE runs counter\n# UNIT runs runs\n\
                            runs_total{a=\"x \\\" # {le=\\\"1\"} 3 # {trace=\"1\"} 1.0\n\
                            # HELP built What.\n# TYPE built info\nbuilt_info{v=\"1\"} 1\n\
                            # TYPE odd unknown\nodd 1.5\n\
                            # TYPE took histogram\ntook_bucket{le=\"10.0\",a=\"le=\"} 1\n# EOF\n";
        let expected = "# HELP runs_total How often.\n# TYPE runs_total counter\n\
                        runs_total{a=\"x \\\" # {le=\\\"1\"} 3\n\
                        # HELP built_info What.\n# TYPE built_info gauge\nbuilt_info{v=\"1\"} 1\n\
                        # TYPE odd untyped\nodd 1.5\n\
                        # TYPE took histogram\ntook_bucket{le=\"10\",a=\"le=\"} 1\n";
        assert_eq!(MetricsFormat::Prometheus.render(open_metrics), expected);
        assert_eq!(MetricsFormat::OpenMetrics.render(open_metrics), open_metrics);
    }
}
