/**
 * The choice of the version of the documentation.
 *
 * Each version of the site has a folder. Beside the folders, versions.json lists their names, the newest first:
 * ["0.2.0", "0.1.0"]. Without this file, as in a site that is opened from disk, there is no choice.
 */
const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
const label = document.getElementById("versions");

async function versions() {
  if (root.protocol === "file:") return [];
  const response = await fetch(new URL("../versions.json", root));
  return response.ok ? response.json() : [];
}

versions().then((names) => {
  const current = root.pathname.split("/").at(-2);
  const page = location.href.slice(root.href.length);
  const select = label.querySelector("select");
  select.append(...names.map((name) => new Option(name, name, false, name === current)));
  select.addEventListener("change", async () => {
    const folder = new URL(`../${select.value}/`, root);
    const same = await fetch(new URL(page, folder), { method: "HEAD" });
    location.assign(same.ok ? new URL(page, folder) : folder);
  });
  label.hidden = !names.length;
});
