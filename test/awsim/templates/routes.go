package templates

import "strings"

// Routes are the functions of the stack's HTTP APIs, by the keys of the routes that lead to them.
func (s *Stack) Routes() map[string]string {
	out := map[string]string{}
	for _, name := range s.Of("AWS::ApiGatewayV2::Api") {
		paths, _ := At(s.Resources[name].Properties, "Body", "paths").(map[string]any)
		for path, of := range paths {
			methods, _ := of.(map[string]any)
			for method, m := range methods {
				key := strings.ToUpper(method) + " " + path
				switch {
				case path == "$default":
					key = path
				case method == "x-amazon-apigateway-any-method":
					key = "ANY " + path
				}
				uri := text(At(m, "x-amazon-apigateway-integration", "uri"))
				_, function, _ := strings.Cut(uri, ":function:")
				out[key] = strings.TrimSuffix(function, "/invocations")
			}
		}
	}
	return out
}
