// Content of files for requests, and addresses of pictures that the service keeps.

/** Return the content of a file as base64. */
export async function base64(file) {
  const octets = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < octets.length; at += 32_768) text += String.fromCharCode(...octets.subarray(at, at + 32_768));
  return btoa(text);
}

/** Return the path of an address of this service, so that the policy's 'self' covers it behind any proxy. */
export const sameOrigin = (url) => new URL(url, window.location.href).pathname;
