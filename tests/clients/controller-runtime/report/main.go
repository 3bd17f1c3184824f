// Command report reads what ginkgo says of each package, holds it against the list of known failures, and prints a line for each
// package and for each spec that is not as the list has it.
package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type report struct {
	Specs []struct {
		Name   string `xml:"name,attr"`
		Status string `xml:"status,attr"`
	} `xml:"testsuite>testcase"`
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "want a directory, the list of known failures, and packages")
		os.Exit(2)
	}
	directory, packages := os.Args[1], os.Args[3:]
	known, err := read(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	isWell := true
	wrong := func(pkg, what string) {
		isWell = false
		fmt.Printf("not ok controller-runtime %s: %s\n", pkg, what)
	}
	for _, pkg := range packages {
		said, err := os.ReadFile(filepath.Join(directory, pkg, "report.xml"))
		if err != nil {
			wrong(pkg, "it did not run: "+err.Error())
			continue
		}
		var found report
		if err := xml.Unmarshal(said, &found); err != nil {
			wrong(pkg, "its report cannot be read: "+err.Error())
			continue
		}
		passed, failed := 0, 0
		for _, spec := range found.Specs {
			key := pkg + " " + spec.Name
			isKnown := known[key]
			delete(known, key)
			switch spec.Status {
			case "passed":
				// The rest prepares for specs, or cleans up after them.
				if strings.HasPrefix(spec.Name, "[It]") {
					passed++
				}
				if isKnown {
					wrong(pkg, spec.Name+" passes: take it out of known-failures.txt")
				}
			case "pending", "skipped":
			default:
				failed++
				if !isKnown {
					wrong(pkg, spec.Name+" "+spec.Status)
				}
			}
		}
		fmt.Printf("ok controller-runtime %s: %d passed, %d failed as known\n", pkg, passed, failed)
	}
	for key := range known {
		wrong("known-failures.txt", key+" is no spec")
	}
	if !isWell {
		os.Exit(1)
	}
}

// read gives the specs of a list: package and name. Lines with # give the reason for those below them.
func read(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			known[line] = true
		}
	}
	return known, nil
}
