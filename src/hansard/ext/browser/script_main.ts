async function main(): Promise<void> {
  const slots: Record<string, string> = {};
  for (const name of SLOTS) {
    const at = process.argv.indexOf(`--${name}`);
    const value = at < 0 ? undefined : process.argv[at + 1];
    if (value === undefined) throw new Error(`--${name} is not given`);
    slots[name] = value;
  }
  const executablePath = process.env.BROWSER || undefined;
  const browser = await chromium.launch({ executablePath });
  try {
    await run(await browser.newPage(), slots);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
