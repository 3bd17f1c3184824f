# The binary steersman, for the operator and the control plane: docker build -t steersman:0.1.0 .
# Both images are of Debian 12, so that the C library that it is linked with is the one that it runs with.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release -p steersman-cli && cp target/release/steersman /steersman

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /steersman /usr/local/bin/steersman
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/steersman"]
CMD ["network"]
