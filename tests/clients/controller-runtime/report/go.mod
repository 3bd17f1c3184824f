module steersman.dev/clients/controller-runtime/report

go 1.26.0
