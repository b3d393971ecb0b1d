package ecs

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const metadataPath = "/v4/"

// endpoints are the variables by which a task finds its metadata and its credentials. A task of AWS gets a
// path below http://169.254.170.2; one that cannot reach that address is given all of it.
func (s *Service) endpoints(t *task) map[string]string {
	env := map[string]string{}
	base := strings.TrimSuffix(s.config.Endpoint, "/")
	if base == "" {
		return env
	}
	env["ECS_CONTAINER_METADATA_URI_V4"] = base + metadataPath + t.address
	if t.credentials == "" {
		return env
	}
	if base == "http://169.254.170.2" {
		env["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = t.credentials
	} else {
		env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = base + t.credentials
	}
	return env
}

// TaskHandler is what tasks find at Config.Endpoint: their metadata (version 4), and credentials at every other
// path. credentials may be nil.
func (s *Service) TaskHandler(credentials http.Handler) http.Handler {
	if credentials == nil {
		credentials = http.NotFoundHandler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, metadataPath)
		if !ok {
			credentials.ServeHTTP(w, r)
			return
		}
		address, part, _ := strings.Cut(path, "/")
		document := s.metadata(address, part)
		if document == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document) // a client that is gone is nobody's error
	})
}

// metadata is the document at an address: of its container, or of the task. (ECS developer guide, "Task
// metadata endpoint version 4 for tasks on Fargate".)
func (s *Service) metadata(address, part string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.address != address {
			continue
		}
		containers := []any{}
		for _, c := range t.containers {
			containers = append(containers, map[string]any{
				"DockerId": t.id + "-" + c.id[:8], "Name": c.def.Name, "DockerName": c.def.Name, "Image": c.def.Image,
				"Labels": map[string]string{
					"com.amazonaws.ecs.cluster": arnOf("cluster", t.cluster.name), "com.amazonaws.ecs.container-name": c.def.Name,
					"com.amazonaws.ecs.task-arn": t.arn, "com.amazonaws.ecs.task-definition-family": t.def.Family,
				},
				"DesiredStatus": t.desired, "KnownStatus": c.status, "Type": "NORMAL",
				"ContainerARN": arnOf("container", t.cluster.name+"/"+t.id+"/"+c.id), "CreatedAt": t.created.UTC().Format(time.RFC3339Nano),
			})
		}
		switch part {
		case "":
			if len(containers) > 0 {
				return containers[0]
			}
		case "task":
			return map[string]any{
				"Cluster": arnOf("cluster", t.cluster.name), "TaskARN": t.arn, "Family": t.def.Family, "Revision": strconv.Itoa(t.def.revision),
				"DesiredStatus": t.desired, "KnownStatus": t.last, "Containers": containers, "LaunchType": "FARGATE",
				"AvailabilityZone": "us-east-1a", "PullStartedAt": t.pullStarted.UTC().Format(time.RFC3339Nano), "PullStoppedAt": t.pullStopped.UTC().Format(time.RFC3339Nano),
				"Limits": map[string]any{"CPU": number(t.cpu) / 1024, "Memory": number(t.memory)},
			}
		}
		return nil
	}
	return nil
}
