import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
/** The URL of the service during the development of the pages: `npm run dev`. */
const service = process.env['CONVOKE_URL'] ?? 'http://127.0.0.1:8080';

export default defineConfig({
  root: here('.'),
  build: {
    outDir: here('dist'),
    emptyOutDir: true,
    // The Content-Security-Policy allows no data: URL and nothing inline.
    assetsInlineLimit: 0,
    rolldownOptions: { input: [here('index.html'), here('docs.html'), here('invite.html')] },
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': service, '/metrics': service, '/openapi.json': service } },
});
