//! Validation of `spec.conversion`, with the field names of `v1beta1` in errors.

use crate::crd::ca_bundle;
use crate::crd::{flag, text, texts};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::value::at;
use steersman_machinery::{Value, field, name};

/// The ConversionReview versions that the server supports.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// The errors of the conversion of a definition's spec, if it has one.
pub(super) fn errors(spec: &Value, path: &field::Path) -> Vec<field::Error> {
    let Some(conversion) = spec.get("conversion").filter(|conversion| !conversion.is_null()) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    let strategy = text(conversion, &["strategy"]);
    let strategy_path = path.child("strategy");
    if strategy != "None" && flag(spec, &["preserveUnknownFields"]) {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(field::Error::invalid(&strategy_path, strategy, detail));
    }
    match strategy {
        "" => errors.push(field::Error::required(&strategy_path, "")),
        "None" | "Webhook" => {}
        other => errors.push(field::Error::not_supported(&strategy_path, other, &["None", "Webhook"])),
    }
    let config_path = path.child("webhookClientConfig");
    let reviews_path = path.child("conversionReviewVersions");
    let config = at(conversion, &["webhook", "clientConfig"]).filter(|config| !config.is_null());
    let reviews = texts(conversion, &["webhook", "conversionReviewVersions"]);
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(field::Error::forbidden(&config_path, detail));
        }
        if !reviews.is_empty() {
            errors.push(field::Error::forbidden(&reviews_path, detail));
        }
        return errors;
    }
    match config {
        None => errors.push(field::Error::required(&config_path, "required when strategy is set to Webhook")),
        Some(config) => errors.extend(client_config(config, &config_path)),
    }
    errors.extend(review_versions(&reviews, &reviews_path));
    errors
}

/// The error of a definition whose webhook has an invalid CA bundle.
pub(super) fn bundle_error(definition: &Value) -> Option<field::Error> {
    let config = at(definition, &["spec", "conversion", "webhook", "clientConfig"])?;
    let why = ca_bundle::fault(config)?;
    let path = field::Path::new("spec.conversion.webhookClientConfig.caBundle");
    Some(field::Error::invalid(&path, text(config, &["caBundle"]), format!("unable to load root certificates: {why}")))
}

fn client_config(config: &Value, path: &field::Path) -> Vec<field::Error> {
    let given = |key: &str| config.get(key).filter(|value| !value.is_null());
    match (given("url").and_then(Value::as_str), given("service")) {
        (Some(url), None) => url_errors(url, &path.child("url")),
        (None, Some(service)) => service_errors(service, &path.child("service")),
        (Some(_), Some(_)) | (None, None) => {
            vec![field::Error::required(path, "exactly one of url or service is required")]
        }
    }
}

fn url_errors(url: &str, path: &field::Path) -> Vec<field::Error> {
    let form = "desired format: https://host[:port]/path";
    let (Ok(uri), Some((_, rest))) = (url.parse::<http::Uri>(), url.split_once("://")) else {
        let detail = format!("url must be a valid URL: {url:?} cannot be read; {form}");
        return vec![field::Error::required(path, detail)];
    };
    let mut errors = Vec::new();
    let mut wrong = |value: &str, detail: String| errors.push(field::Error::invalid(path, value, detail));
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        wrong(scheme, format!("'https' is the only allowed URL scheme; {form}"));
    }
    if uri.host().unwrap_or_default().is_empty() {
        wrong("", format!("host must be specified; {form}"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        wrong(
            uri.authority().map(http::uri::Authority::as_str).unwrap_or_default(),
            "user information is not permitted in the URL".to_owned(),
        );
    }
    if let Some((_, fragment)) = rest.split_once('#') {
        wrong(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if let Some(query) = uri.query() {
        wrong(query, "query parameters are not permitted in the URL".to_owned());
    }
    errors
}

fn service_errors(service: &Value, path: &field::Path) -> Vec<field::Error> {
    let mut errors = Vec::new();
    for key in ["name", "namespace"] {
        if text(service, &[key]).is_empty() {
            errors.push(field::Error::required(&path.child(key), format!("service {key} is required")));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64).filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(field::Error::invalid(&path.child("port"), port, detail));
    }
    let web_path = text(service, &["path"]);
    if !web_path.is_empty() && !web_path.starts_with('/') {
        let detail = "must start with a '/'";
        errors.push(field::Error::invalid(&path.child("path"), web_path, detail));
    }
    errors
}

fn review_versions(reviews: &[&str], path: &field::Path) -> Vec<field::Error> {
    if reviews.is_empty() {
        return vec![field::Error::required(path, "")];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, review) in reviews.iter().enumerate() {
        if !seen.insert(*review) {
            errors.push(field::Error::invalid(&path.index(index), *review, "duplicate version"));
            continue;
        }
        let wrong = name::dns1035_label(review);
        errors.extend(wrong.into_iter().map(|detail| field::Error::invalid(&path.index(index), *review, detail)));
    }
    if !reviews.iter().any(|review| REVIEWS.contains(review)) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(field::Error::invalid(path, json!(reviews), detail));
    }
    errors
}
